// Where each parameter lies: adds to the model's parameters the splits and partial sums that the mesh asks
// for. Pure data; what is said here is all that FSDP, tensor and pipeline parallelism know of a parameter.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "mesh/mesh_shape.h"
#include "model/model_spec.h"
#include "model/parameter.h"
#include "parallel/lowering.h"

namespace argosy::parallel {

/// The parameters of every unit of the model (embedding, blocks, head), placed on the mesh, and where each
/// unit runs.
struct PlacedModel {
    std::vector<std::vector<model::Parameter>> units;
    std::vector<int> unit_stage;
};

/// `stage_layers[s]` blocks run on stage s; the embedding on the first, the head on the last.
/// Throws UserError when the mesh cannot hold the model (heads that do not divide, ...).
PlacedModel place(const model::ModelSpec& spec, const mesh::MeshShape& mesh,
                  const std::vector<int>& stage_layers);

/// Whether its gradient's only sum, after the shard axes' reduce-scatter, is over the replicas of one stage:
/// the program makes it. The others come after the program, in their order: see gradients.h.
bool summed_by_program(const layout::ParamSpec& spec);

/// The roles of a unit's parameters that the program sums over replicas when the unit's gradients are
/// complete. The table that embedding and head of a stage share is the embedding's, whose way back is the
/// last.
std::set<model::Role> summed_roles(const PlacedModel& placed, size_t unit);

/// What the lowering passes must know of each stage.
std::vector<StageUnits> stage_units(const PlacedModel& placed);

/// How many blocks each of `num_stages` gets: as even as possible when the first and last stage count as many
/// blocks more as `first_less` and `last_less` say, for the embedding and the head that they also run; the
/// rest goes to the earlier ones.
std::vector<int> split_layers(int64_t num_layers, int num_stages, int first_less, int last_less);

}  // namespace argosy::parallel
