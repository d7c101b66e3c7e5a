// How a run's tensors are cut over the ranks that write them: the placement of parameters on the mesh
// (layout/param_spec.h) as the plan of a save (checkpoint/placement.h). Ranks that hold the same elements
// share the writing.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/placement.h"
#include "comm/communicator.h"
#include "layout/param_spec.h"

namespace argosy::resume {

/// Minimum size of a part. The replicas of a box write its rows in equal parts if each gets this many bytes;
/// otherwise one of them, chosen by the tensor's name, writes the whole box.
inline constexpr int64_t kMinPartBytes = 64 << 10;

/// The writers of a save form this grid: pipeline, tensor, shard and context together, replicate. A tensor
/// is cut in this order too, so that neighbours on the grid have neighbouring pieces.
std::vector<int> writer_grid(const layout::MeshShape& mesh);

/// The number of a rank in the grid.
int writer_of(const layout::MeshShape& mesh, const layout::Coordinates& coordinates);

/// How the tensor `info` of the parameter `spec` is cut.
checkpoint::PlacedTensor placed_tensor(const checkpoint::TensorInfo& info, const layout::ParamSpec& spec,
                                       const layout::MeshShape& mesh);

/// COLLECTIVE over `control`, whose ranks are the mesh's. The tensors of all pipeline ranks, from those of
/// each, `own`; a tensor on two of them is listed once. Costs one broadcast for each pipeline rank.
std::vector<checkpoint::PlacedTensor> gather_tensors(const std::vector<checkpoint::PlacedTensor>& own,
                                                     const layout::MeshShape& mesh,
                                                     comm::Communicator& control);

}  // namespace argosy::resume
