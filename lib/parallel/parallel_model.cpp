#include "parallel/parallel_model.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "model/block.h"
#include "model/head.h"
#include "ops/numerics.h"
#include "ops/sums.h"
#include "parallel/unit_memory.h"

namespace argosy::parallel {
namespace {

using comm::Op;
using comm::OpKind;

/// The first and the last stage send each other their part of a tied table's gradient. Each stage adds the
/// two parts.
void exchange_tied(ParallelModel& model, comm::Mesh& mesh) {
    comm::Communicator& pipeline = mesh.group(layout::Axis::Pipeline);
    for (const auto& parameter : model.parameters()) {
        const std::vector<int>& ranks = parameter->spec().pipeline_ranks;
        if (ranks.size() < 2) continue;
        const int peer = pipeline.rank() == ranks.front() ? ranks.back() : ranks.front();
        const at::Tensor& own = parameter->gradient().sum;
        const at::Tensor other = at::empty_like(own);
        pipeline.run(std::vector<Op>{{.kind = OpKind::Send, .in = own, .peer = peer},
                                     {.kind = OpKind::Receive, .out = other, .peer = peer}});
        parameter->set_gradient(parameter->wide_gradient().add_(other), ops::Rounded::GradientOfStages);
    }
}

}  // namespace

ParallelModel::ParallelModel(const model::ModelSpec& spec, const ModelPlacement& placement, comm::Mesh& mesh,
                             const ModelOptions& options)
    : spec_(spec),
      stage_map_(placement.stages),
      precision_(options.precision),
      device_(mesh.device()),
      rope_(model::rope_table(
          spec, options.seq_len,
          at::TensorOptions(device_).dtype(ops::accumulation_type(options.precision.compute)))),
      first_rounding_(device_),
      axis_(make_tensor_axis(options.tensor, mesh,
                             options.microbatch_size * options.seq_len / mesh.degree(layout::Axis::Context))),
      context_(make_context_axis(options.context, mesh, options.seq_len)) {
    ARGOSY_CHECK(!precision_.bf16_gradients || precision_.reduce == at::kFloat,
                 "gradients in bf16 with sums over ranks in {}", toString(precision_.reduce));
    for (size_t unit = 0; unit < placement.units.size(); ++unit) {
        if (placement.rank_of(unit) != mesh.coordinate(layout::Axis::Pipeline)) continue;
        Stage& own_stage = stage(placement.unit_stage[unit]);
        if (unit == 0) {
            own_stage.layers.push_back(std::make_unique<model::Embedding>(spec_, *axis_));
        } else if (unit + 1 == placement.units.size()) {
            own_stage.head.emplace(spec_, *axis_, options.tensor.gather_logits);
        } else {
            own_stage.layers.push_back(std::make_unique<model::Block>(spec_, *axis_, *context_, rope_));
        }
        add_unit(placement, static_cast<int>(unit), mesh, options);
    }
}

Stage& ParallelModel::stage(int number) {
    if (stages_.empty() || stages_.back().number != number) stages_.emplace_back().number = number;
    return stages_.back();
}

void ParallelModel::add_unit(const ModelPlacement& placement, int unit, comm::Mesh& mesh,
                             const ModelOptions& options) {
    const std::set<model::Role> summed = summed_roles(placement, unit);
    UnitMemory memory(placement.units[unit], mesh, precision_, options.purpose);
    std::vector<ShardedUnit::Parameter> parameters;
    for (const model::Parameter& each : placement.units[unit]) {
        // Tied embedding and head share one parameter if they are on one rank.
        ShardedParameter* parameter = find(each.spec.name);
        if (parameter == nullptr) {
            parameters_.push_back(std::make_unique<ShardedParameter>(each.spec, mesh, memory.next(each),
                                                                     options.seed, &first_rounding_));
            parameter_units_.push_back(unit);
            parameter = parameters_.back().get();
        }
        parameters.push_back({each.role, parameter, summed.contains(each.role)});
    }
    stage(placement.unit_stage[unit])
        .units.emplace_back(std::move(parameters), mesh.group(layout::kShardAxes),
                            mesh.group(layout::Axis::Replicate), memory.joined(), reduce_after(mesh.shape()));
}

void ParallelModel::start_roundings(int64_t update, int64_t microbatch) {
    if (!precision_.bf16_gradients) return;
    first_rounding_.set(ops::rounding_number(update, microbatch));
    for (const auto& parameter : parameters_) {
        ops::SumRounding& rounding = *parameter->gradient().rounding;
        rounding.microbatch = rounding.count = 0;
    }
}

ShardedParameter* ParallelModel::find(const std::string& name) const {
    const auto found = std::ranges::find(parameters_, name, [](const auto& one) { return one->spec().name; });
    return found == parameters_.end() ? nullptr : found->get();
}

void reset_gradients(ParallelModel& model) {
    for (const auto& parameter : model.parameters()) parameter->gradient().empty = true;
}

void sum_remaining(ParallelModel& model, comm::Mesh& mesh) {
    std::map<std::pair<layout::AxisSet, int>, std::vector<Op>> groups;  // one launch for each group of ranks
    std::vector<std::pair<ShardedParameter*, at::Tensor>> sums;
    for (const auto& parameter : model.parameters()) {
        const auto& [axes, parts] = parameter->spec().gradient;
        if (axes.empty() || summed_by_program(parameter->spec())) continue;
        const at::Tensor sum = parameter->wide_gradient();
        groups[{axes, parts}].push_back({.kind = OpKind::AllReduce, .out = sum, .in = sum});
        sums.emplace_back(parameter.get(), sum);
    }
    for (const auto& [key, ops] : groups) mesh.group(key.first, key.second).run(ops);
    for (const auto& [parameter, sum] : sums) parameter->set_gradient(sum, ops::Rounded::GradientOfRanks);
    exchange_tied(model, mesh);
}

at::Tensor owned_squared_norms(ParallelModel& model) {
    // 1. collect the gradients that this rank owns, unit by unit: parameters() has the order of the units
    std::vector<at::Tensor> gradients;
    std::vector<int64_t> num_owned(model.spec().num_layers + 2);  // of each unit
    for (size_t i = 0; i < model.parameters().size(); ++i) {
        const auto& parameter = model.parameters()[i];
        if (!parameter->owned()) continue;
        gradients.push_back(parameter->gradient().sum);
        ++num_owned[model.parameter_units()[i]];
    }
    if (gradients.empty()) {
        return at::zeros({std::ssize(num_owned)}, at::TensorOptions(model.device()).dtype(at::kDouble));
    }
    // 2. add up the squared norms of each unit in the order of its parameters; on a GPU, index_add_ would add
    //    them in an undefined order
    const at::Tensor squares = ops::squared_norms(gradients);
    std::vector<at::Tensor> totals;
    for (int64_t first = 0; const int64_t count : num_owned) {
        totals.push_back(squares.narrow(0, first, count).sum());
        first += count;
    }
    return at::stack(totals);
}

}  // namespace argosy::parallel
