// What remains to be done to gradients once a step's program is through: the sums that it does not make, and
// their norm.
#pragma once

#include <ATen/core/Tensor.h>

#include "mesh/mesh.h"
#include "parallel/parallel_model.h"

namespace argosy::parallel {

/// Before a step's first microbatch: gradients start from nothing.
void start_gradients(ParallelModel& model);

/// COLLECTIVE: adds up what other ranks hold of the same parameter's gradient, as its ParamSpec says, where
/// the program has not (see summed_by_program): the two stages of a tied table, norms and key heads over the
/// tensor axis, and what these have over the replicas.
void sum_remaining(ParallelModel& model, mesh::Mesh& mesh);

/// For each unit of the whole model (model::unit_names) the squared norm of the gradients of its parameters
/// that this rank owns, fp64: the sum over all ranks is that of the unit's whole gradient.
at::Tensor owned_squared_norms(ParallelModel& model);

}  // namespace argosy::parallel
