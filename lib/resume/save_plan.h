// How a save cuts a run's tensors over the ranks that write them: the cuts of a parameter over the mesh
// (layout/param_spec.h) as cuts over the grid of writers (checkpoint/plan.h). Ranks that hold the same slab
// share the writing.
#pragma once

#include <vector>

#include "checkpoint/plan.h"
#include "comm/communicator.h"
#include "layout/param_spec.h"

namespace argosy::resume {

/// The replicas of a slab write its rows in equal parts if each gets this many bytes; otherwise one of them,
/// chosen by the tensor's name, writes the whole slab.
inline constexpr int64_t kMinSlabBytes = 64 << 10;

/// The writers of a save form this grid: pipeline, tensor, shard and context together, replicate. A tensor
/// is cut in this order too, so that neighbours on the grid have neighbouring slabs.
std::vector<int> writer_grid(const layout::MeshShape& mesh);

/// The number of a rank in the grid.
int writer_of(const layout::MeshShape& mesh, const layout::Coordinates& coordinates);

/// Cuts `tensor`, which has the shape of the parameter `spec`.
checkpoint::CutTensor cut_tensor(const checkpoint::TensorInfo& tensor, const layout::ParamSpec& spec,
                                 const layout::MeshShape& mesh);

/// COLLECTIVE over `control`, whose ranks are the mesh's. The tensors of all pipeline ranks, from those of
/// each, `own`; a tensor on two of them is listed once. Costs one broadcast for each pipeline rank.
std::vector<checkpoint::CutTensor> gather_tensors(const std::vector<checkpoint::CutTensor>& own,
                                                  const layout::MeshShape& mesh, comm::Communicator& control);

}  // namespace argosy::resume
