// Work on the gradients before and after a step's program (parallel/lowering.h): the gradient sums over ranks
// that the program does not make, and the gradient norm.
#pragma once

#include <ATen/core/Tensor.h>

#include "comm/mesh.h"
#include "parallel/parallel_model.h"

namespace argosy::parallel {

/// Marks all gradients as empty. Called before a step's first microbatch.
void start_gradients(ParallelModel& model);

/// COLLECTIVE: sums gradients over the ranks that hold the same parameter, as its ParamSpec says,
/// unless the program sums them (see summed_by_program). The remaining ones are a tied table on two stages,
/// norms and shared key/value heads over the tensor axis, and the replica sums of these parameters.
void sum_remaining(ParallelModel& model, comm::Mesh& mesh);

/// Returns [units of the whole model] (model::unit_names) in fp64: for each unit, the squared norm of the
/// gradients of its parameters that this rank owns. The sum over all ranks is the squared norm of the unit's
/// whole gradient.
at::Tensor owned_squared_norms(ParallelModel& model);

}  // namespace argosy::parallel
