// Placement of the parameters on the mesh: adds to each parameter of the model its cuts over mesh axes, the
// sums that its gradient needs, and its pipeline stages. The result is pure data, and the only description of
// a parameter that FSDP, tensor and pipeline parallelism read.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "layout/mesh_shape.h"
#include "model/model_spec.h"
#include "model/parameter.h"
#include "parallel/lowering.h"

namespace argosy::parallel {

/// The axes over which the parameters of dense layers are sharded.
inline constexpr layout::AxisSet kDenseShards = {layout::Axis::Shard, layout::Axis::Context};

/// The axes over which experts are sharded, less those that divide the experts.
inline constexpr layout::AxisSet kExpertShards = {layout::Axis::Shard, layout::Axis::Context,
                                                  layout::Axis::Tensor};

/// The parameters of every unit of the model (embedding, blocks, head) with their placement, and the pipeline
/// stage of each unit.
struct ModelPlacement {
    std::vector<std::vector<model::Parameter>> units;
    std::vector<int> unit_stage;
    StageMap stages;

    /// The pipeline rank that runs the unit.
    int rank_of(size_t unit) const { return stages.rank_of(unit_stage[unit]); }
};

/// Stage s runs `stage_layers[s]` blocks; the first stage also runs the embedding and the last one the head.
/// Throws UserError if the mesh cannot hold the model (heads that do not divide, ...). REQUIRES: the mesh is
/// resolve()d with the number of experts.
ModelPlacement place_parameters(const model::ModelSpec& spec, const layout::MeshShape& mesh,
                                const std::vector<int>& stage_layers, StageOrder order = StageOrder::Loop);

/// For each set of a unit: the axes over which its parameters are sharded. REQUIRES: what model::Parameter
/// says of sets.
std::vector<layout::AxisSet> shards_of_sets(const std::vector<model::Parameter>& unit);

/// The numbers of a unit's parameters whose gradients are summed over ranks (ParamSpec::gradient), once the
/// unit's gradients are complete: over the replicas and, for norms and shared key/value heads, over the
/// tensor axis. If embedding and head of one rank share a table, it is among those of the embedding alone,
/// whose backward runs last.
std::set<int> summed_parameters(const ModelPlacement& placement, size_t unit);

/// The input of the lowering passes, by stage number.
std::vector<StageUnits> stage_units(const ModelPlacement& placement);

/// Returns the number of blocks for each of `num_stages` stages, as even as possible. The embedding counts
/// as `first_less` blocks of the first stage, the head as `last_less` blocks of the last stage. A remainder
/// goes to the earlier stages.
std::vector<int> split_layers(int64_t num_layers, int num_stages, int first_less, int last_less);

}  // namespace argosy::parallel
