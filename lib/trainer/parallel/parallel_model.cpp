#include "parallel/parallel_model.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "model/block.h"
#include "model/head.h"
#include "ops/numerics.h"
#include "ops/sums.h"
#include "parallel/expert_parallel.h"
#include "parallel/unit_memory.h"

namespace argosy::parallel {
namespace {

/// The group for the sum of a parameter's gradient. Over the tensor axis it is not the group of the layers'
/// collectives, so that the next layer's do not queue behind the sums of the layer before.
comm::Communicator& sum_group(comm::Mesh& mesh, const layout::ParamSpec& spec) {
    return mesh.group(spec.gradient.axes, spec.gradient.parts, /*number=*/1);
}

/// COLLECTIVE: makes the groups of the units' sets and sums and of messages between stages, with their
/// connections between GPUs, before the units take memory. Returns the group of the ranks that
/// hold parts of a matrix if weights are gathered in float8 and these are several ranks, else null.
comm::Communicator* open_groups(const ModelPlacement& placement, comm::Mesh& mesh, ModelUse use,
                                bool gathers_float8) {
    using enum comm::Collectives;
    const bool trains = use == ModelUse::Training;
    layout::AxisSet parts = layout::Axis::Tensor;
    for (size_t unit = 0; unit < placement.units.size(); ++unit) {
        if (placement.rank_of(unit) != mesh.coordinate(layout::Axis::Pipeline)) continue;
        const std::vector<model::Parameter>& declared = placement.units[unit];
        for (const layout::AxisSet shards : shards_of_sets(declared)) {
            mesh.group(shards).open_collectives(trains ? All : Others);
            parts.add(shards);
        }
        for (const int number : summed_parameters(placement, unit)) {
            if (trains) sum_group(mesh, declared[number].spec).open_collectives(Reductions);
        }
    }
    mesh.group(layout::Axis::Pipeline).open_channels();
    gradient_group(mesh, placement.stages).open_channels();
    if (!gathers_float8 || mesh.degree(parts) == 1) return nullptr;
    mesh.group(parts).open_collectives(Reductions);
    return &mesh.group(parts);
}

}  // namespace

comm::Communicator& gradient_group(comm::Mesh& mesh, const StageMap& stages) {
    const bool both_ways = stages.num_ranks() > 1 && stages.num_stages() > stages.num_ranks();
    return mesh.group(layout::Axis::Pipeline, /*parts=*/1, /*number=*/both_ways ? 1 : 0);
}

ParallelModel::ParallelModel(const model::ModelSpec& spec, const ModelPlacement& placement, comm::Mesh& mesh,
                             const ModelOptions& options, ModelUse use)
    : spec_(spec),
      stage_map_(placement.stages),
      precision_(options.precision),
      casts_(options.casts),
      device_(mesh.device()),
      rope_(model::rope_tables(
          spec, options.seq_len,
          at::TensorOptions(device_).dtype(ops::accumulation_type(options.precision.compute)))),
      first_rounding_(device_),
      axis_(make_tensor_axis(options.tensor, mesh,
                             options.microbatch_size * options.seq_len / mesh.degree(layout::Axis::Context),
                             options.casts)),
      context_(make_context_axis(options.context, mesh, options.seq_len)),
      experts_(make_expert_axis(spec, mesh, options.planned_imbalance)) {
    ARGOSY_CHECK(!precision_.bf16_gradients || precision_.reduce == at::kFloat,
                 "gradients in bf16 with sums over ranks in {}", toString(precision_.reduce));
    if (options.score_threshold) {
        const auto type = ops::accumulation_type(options.precision.compute);
        scores_ = {at::empty({spec.num_layers, spec.num_heads}, at::TensorOptions(device_).dtype(type)),
                   *options.score_threshold};
        reset_scores(*this);
    }
    if (spec.experts) {
        const auto type = ops::accumulation_type(options.precision.compute);
        router_biases_ = at::zeros({spec.num_layers, spec.experts->router.num_experts},
                                   at::TensorOptions(device_).dtype(type));
    }
    matrix_parts_ = open_groups(placement, mesh, use, casts_.gather);
    for (size_t unit = 0; unit < placement.units.size(); ++unit) {
        if (placement.rank_of(unit) != mesh.coordinate(layout::Axis::Pipeline)) continue;
        Stage& own_stage = stage(placement.unit_stage[unit]);
        const bool is_layer = unit > 0 && unit + 1 < placement.units.size();
        own_stage.specs.push_back(is_layer ? model::layer_spec(spec_, static_cast<int64_t>(unit) - 1)
                                           : model::LayerSpec{});
        if (unit == 0) {
            own_stage.layers.push_back(std::make_unique<model::Embedding>(spec_, *axis_));
        } else if (unit + 1 == placement.units.size()) {
            own_stage.head.emplace(spec_, *axis_, options.tensor.gather_logits);
        } else {
            const auto layer = static_cast<int64_t>(unit) - 1;
            own_stage.layers.push_back(std::make_unique<model::Block>(
                spec_, layer, *axis_, context_of(layer, mesh), *experts_, rope_));
        }
        add_unit(placement, static_cast<int>(unit), mesh, options, use);
    }
    refresh_float8();
}

/// The attention of a layer, watched if the scores are.
const model::ContextAxis& ParallelModel::context_of(int64_t layer, const comm::Mesh& mesh) {
    if (!scores_.largest.defined()) return *context_;
    const int64_t heads = spec_.num_heads / mesh.degree(layout::Axis::Tensor);  // of each tensor rank
    const int64_t first = heads * mesh.coordinate(layout::Axis::Tensor);
    const ops::ScoreWatch watch = {scores_.largest[layer].narrow(0, first, heads), scores_.threshold};
    return watched_.emplace_back(*context_, watch);
}

Stage& ParallelModel::stage(int number) {
    if (stages_.empty() || stages_.back().number != number) stages_.emplace_back().number = number;
    return stages_.back();
}

void ParallelModel::add_unit(const ModelPlacement& placement, int unit, comm::Mesh& mesh,
                             const ModelOptions& options, ModelUse use) {
    const std::vector<model::Parameter>& declared = placement.units[unit];
    const std::set<int> summed = summed_parameters(placement, unit);
    const auto recipes = recipes_of(declared, casts_, mesh.shape());
    UnitMemory memory(declared, mesh, precision_, use, kept_in_float8(declared, recipes, casts_));
    std::vector<ShardedUnit::Parameter> parameters;
    std::vector<comm::Communicator*> groups;
    for (const layout::AxisSet shards : shards_of_sets(declared)) groups.push_back(&mesh.group(shards));
    for (int number = 0; const model::Parameter& each : declared) {
        // Tied embedding and head share one parameter if they are on one rank.
        ShardedParameter* parameter = find(each.spec.name);
        if (parameter == nullptr) {
            parameters_.push_back(std::make_unique<ShardedParameter>(each.spec, mesh, memory.of(number),
                                                                     options.seed, &first_rounding_));
            parameter_units_.push_back(unit);
            parameter = parameters_.back().get();
        }
        comm::Communicator* summed_over = summed.contains(number++) ? &sum_group(mesh, each.spec) : nullptr;
        parameters.push_back({each.place, parameter, summed_over, each.set});
    }
    ShardedUnit& made =
        stage(placement.unit_stage[unit])
            .units.emplace_back(parameters, groups, memory.joined(), reduce_after(mesh.shape()), recipes);
    const bool is_block = unit > 0 && unit <= spec_.num_layers;
    if (is_block && layer_spec(spec_, unit - 1).has_experts) made.set_router_bias(router_biases_[unit - 1]);
}

void ParallelModel::refresh_float8() {
    // 1. the largest magnitudes of this rank's shards: one for each scale, which the parameters of a join
    // share
    std::vector<at::Tensor> scales, largest;
    std::vector<std::pair<ShardedParameter*, size_t>> casts;  // with the number of its scale
    for (const auto& parameter : parameters_) {
        if (!parameter->scale().defined()) continue;
        const at::Tensor own = ops::largest_magnitude(parameter->master());
        const auto same = std::ranges::find_if(
            scales, [&](const at::Tensor& scale) { return scale.is_same(parameter->scale()); });
        const auto number = static_cast<size_t>(same - scales.begin());
        if (same == scales.end()) {
            scales.push_back(parameter->scale());
            largest.push_back(own);
        } else {
            largest[number] = at::maximum(largest[number], own);
        }
        casts.emplace_back(parameter.get(), number);
    }
    if (casts.empty()) return;
    // 2. those of the whole matrices: [scales, 1, 1]
    const at::Tensor all = at::stack(largest);
    if (matrix_parts_ != nullptr) {
        matrix_parts_->run(
            {.kind = comm::OpKind::AllReduce, .out = all, .in = all, .reduction = comm::Reduction::Max});
    }
    // 3. the casts
    for (const auto& [parameter, number] : casts) {
        parameter->cast_to_float8(casts_.recipe->forward.right, all[static_cast<int64_t>(number)]);
    }
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

void reset_scores(ParallelModel& model) {
    const at::Tensor& largest = model.largest_scores();
    if (largest.defined()) largest.fill_(-std::numeric_limits<double>::infinity());
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
