// Work on the gradients before and after a step's program (parallel/lowering.h): the gradient sums over ranks
// that the program does not make, and the gradient norm.
#pragma once

#include <ATen/core/Tensor.h>

#include "comm/mesh.h"
#include "parallel/parallel_model.h"

namespace argosy::parallel {

/// Marks all gradients as empty. Called before a step's first microbatch.
void reset_gradients(ParallelModel& model);

/// COLLECTIVE: makes the gradient sums that the program does not make (see summed_by_program):
/// 1. The gradients of norm weights and shared key/value heads are summed in one sum over the tensor axis and
///    the replicas.
/// 2. If a tied table is on two stages, the two stages add their gradients of the table, each already summed
///    over the replicas. Two numbers have the same sum in either order, so both stages get the same bits.
void sum_remaining(ParallelModel& model, comm::Mesh& mesh);

/// Returns [units of the whole model] (model::unit_names) in fp64: for each unit, the squared norm of the
/// gradients that this rank owns. The sum over all ranks is the squared norm of the unit's whole gradient.
at::Tensor owned_squared_norms(ParallelModel& model);

}  // namespace argosy::parallel
