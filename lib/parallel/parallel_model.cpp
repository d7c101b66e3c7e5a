#include "parallel/parallel_model.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "base/error.h"
#include "model/block.h"
#include "model/head.h"
#include "ops/numerics.h"
#include "parallel/unit_memory.h"

namespace argosy::parallel {
namespace {

std::unique_ptr<model::TensorAxis> make_axis(comm::Mesh& mesh) {
    if (mesh.degree(layout::Axis::Tensor) == 1) return std::make_unique<model::TensorAxis>();
    return std::make_unique<TensorParallelAxis>(mesh.group(layout::Axis::Tensor));
}

}  // namespace

ParallelModel::ParallelModel(const model::ModelSpec& spec, const ModelPlacement& placement, comm::Mesh& mesh,
                             const Precision& precision, int64_t seq_len, uint64_t seed)
    : spec_(spec),
      stage_map_(placement.stages),
      precision_(precision),
      device_(mesh.device()),
      rope_(model::rope_table(spec, seq_len,
                              at::TensorOptions(device_).dtype(ops::accumulation_type(precision.compute)))),
      first_rounding_(device_),
      axis_(make_axis(mesh)) {
    ARGOSY_CHECK(!precision.bf16_gradients || precision.reduce == at::kFloat,
                 "gradients in bf16 with sums over ranks in {}", toString(precision.reduce));
    for (size_t unit = 0; unit < placement.units.size(); ++unit) {
        if (placement.rank_of(unit) != mesh.coordinate(layout::Axis::Pipeline)) continue;
        Stage& own_stage = stage(placement.unit_stage[unit]);
        if (unit == 0) {
            own_stage.layers.push_back(std::make_unique<model::Embedding>(spec_, *axis_));
        } else if (unit + 1 == placement.units.size()) {
            own_stage.head.emplace(spec_, *axis_);
        } else {
            own_stage.layers.push_back(std::make_unique<model::Block>(spec_, *axis_, rope_));
        }
        add_unit(placement, static_cast<int>(unit), mesh, seed);
    }
}

Stage& ParallelModel::stage(int number) {
    if (stages_.empty() || stages_.back().number != number) stages_.emplace_back().number = number;
    return stages_.back();
}

void ParallelModel::add_unit(const ModelPlacement& placement, int unit, comm::Mesh& mesh, uint64_t seed) {
    const std::set<model::Role> summed = summed_roles(placement, unit);
    UnitMemory memory(placement.units[unit], mesh, precision_);
    std::vector<ShardedUnit::Parameter> parameters;
    for (const model::Parameter& each : placement.units[unit]) {
        // Tied embedding and head share one parameter if they are on one rank.
        ShardedParameter* parameter = find(each.spec.name);
        if (parameter == nullptr) {
            parameters_.push_back(std::make_unique<ShardedParameter>(each.spec, mesh, memory.next(each), seed,
                                                                     &first_rounding_));
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

using comm::OpKind;

at::Tensor TensorParallelAxis::gather_rows(const at::Tensor& x) const {
    at::Tensor all = at::empty({x.size(0) * group_.size(), x.size(1)}, x.options());
    group_.run({.kind = OpKind::AllGather, .out = all, .in = x.contiguous()});
    return all;
}

at::Tensor TensorParallelAxis::reduce_rows(const at::Tensor& partial) const {
    ARGOSY_CHECK(partial.size(0) % group_.size() == 0, "{} rows on {} ranks", partial.size(0), group_.size());
    at::Tensor own = at::empty({partial.size(0) / group_.size(), partial.size(1)}, partial.options());
    group_.run({.kind = OpKind::ReduceScatter, .out = own, .in = partial.contiguous()});
    return own;
}

void TensorParallelAxis::sum(at::Tensor& values) const {
    group_.run({.kind = OpKind::AllReduce, .out = values, .in = values});
}

void TensorParallelAxis::max(at::Tensor& values) const {
    group_.run({.kind = OpKind::AllReduce, .out = values, .in = values, .reduction = comm::Reduction::Max});
}

}  // namespace argosy::parallel
