// What remains to be done to gradients once every microbatch is through: sums over replicas, and their norm.
#pragma once

#include <ATen/core/Tensor.h>

#include "mesh/mesh.h"
#include "parallel/parallel_model.h"

namespace argosy::parallel {

/// Before a step's first microbatch: gradients start from nothing.
void start_gradients(ParallelModel& model);

/// COLLECTIVE: adds up what other ranks hold of the same parameter's gradient, as its ParamSpec says: the two
/// stages of a tied table, norms over the tensor axis, replicas of the data-parallel axis.
void sum_replicas(ParallelModel& model, mesh::Mesh& mesh);

/// For each unit of the whole model (model::unit_names) the squared norm of the gradients of its parameters
/// that this rank owns, fp64: the sum over all ranks is that of the unit's whole gradient.
at::Tensor owned_squared_norms(ParallelModel& model);

}  // namespace argosy::parallel
