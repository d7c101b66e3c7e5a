#include "parallel/parallel_model.h"

#include "model/block.h"
#include "model/embedding.h"
#include "ops/types.h"
#include "parallel/tensor_parallel.h"

namespace argosy::parallel {
namespace {

std::unique_ptr<model::TensorAxis> make_axis(mesh::Mesh& mesh) {
    if (mesh.degree(mesh::Axis::Tensor) == 1) return std::make_unique<model::TensorAxis>();
    return std::make_unique<TensorParallelAxis>(mesh.group(mesh::Axis::Tensor));
}

}  // namespace

ParallelModel::ParallelModel(const model::ModelSpec& spec, const PlacedModel& placed, mesh::Mesh& mesh,
                             const Precision& precision, int64_t seq_len, uint64_t seed)
    : spec_(spec),
      precision_(precision),
      device_(mesh.device()),
      rope_(
          ops::make_rope_table(model::rope_frequencies(spec), seq_len,
                               at::TensorOptions(device_).dtype(ops::accumulation_type(precision.compute)))),
      axis_(make_axis(mesh)) {
    const int num_ranks = mesh.degree(mesh::Axis::Pipeline);
    for (size_t unit = 0; unit < placed.units.size(); ++unit) {
        const int number = placed.unit_stage[unit];
        if (number % num_ranks != mesh.coordinate(mesh::Axis::Pipeline)) continue;
        Stage& own = stage(number);
        if (unit == 0) {
            own.layers.push_back(std::make_unique<model::Embedding>(spec_, *axis_));
        } else if (unit + 1 == placed.units.size()) {
            own.head.emplace(spec_, *axis_);
        } else {
            own.layers.push_back(std::make_unique<model::Block>(spec_, *axis_, attention_, rope_));
        }
        add_unit(placed, static_cast<int>(unit), mesh, seed);
    }
}

Stage& ParallelModel::stage(int number) {
    if (stages_.empty() || stages_.back().number != number) stages_.emplace_back().number = number;
    return stages_.back();
}

void ParallelModel::add_unit(const PlacedModel& placed, int unit, mesh::Mesh& mesh, uint64_t seed) {
    const std::set<model::Role> summed = summed_roles(placed, unit);
    std::vector<ShardedUnit::Binding> bindings;
    for (const auto& [role, spec] : placed.units[unit]) {
        bindings.push_back({role, &find_or_create(spec, unit, mesh, seed), summed.contains(role)});
    }
    stage(placed.unit_stage[unit])
        .units.emplace_back(std::move(bindings), mesh.group(mesh::kShardAxes),
                            mesh.group(mesh::Axis::Replicate));
}

/// Where embedding and head are tied and on one rank, they share one parameter.
ShardedParameter& ParallelModel::find_or_create(const layout::ParamSpec& spec, int unit,
                                                const mesh::Mesh& mesh, uint64_t seed) {
    for (const auto& parameter : parameters_) {
        if (parameter->spec().name == spec.name) return *parameter;
    }
    parameter_units_.push_back(unit);
    parameters_.push_back(std::make_unique<ShardedParameter>(spec, mesh, precision_, seed));
    return *parameters_.back();
}

}  // namespace argosy::parallel
