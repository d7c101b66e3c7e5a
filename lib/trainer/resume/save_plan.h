// Plans which slab of each tensor a rank writes in a save. Translates the cuts of a parameter over the mesh
// (layout/param_spec.h) into cuts over the grid of writers (checkpoint/save_plan.h). Ranks that hold the same
// slab share the writing.
#pragma once

#include <vector>

#include "checkpoint/save_plan.h"
#include "comm/communicator.h"
#include "layout/param_spec.h"

namespace argosy::resume {

/// The ranks of the replicate axis hold the same slab. They write its rows in equal parts if the rows can be
/// divided equally and each part has at least this many bytes. Otherwise one of these ranks, chosen by the
/// tensor's name, writes the whole slab.
inline constexpr int64_t kMinSlabBytes = 64 << 10;

/// The grid of a save's writers. The grid has the axes pipeline, tensor, shard and context together, and
/// replicate. A tensor is cut in this order, too, so that neighbours on the grid have neighbouring slabs.
std::vector<int> writer_grid(const layout::MeshShape& mesh);

/// The number of a rank among the writers of the grid.
int writer_of(const layout::MeshShape& mesh, const layout::Coordinates& coordinates);

/// Plans the cuts of `tensor`, which has the shape of the parameter `spec`.
checkpoint::CutTensor cut_tensor(const checkpoint::TensorInfo& tensor, const layout::ParamSpec& spec,
                                 const layout::MeshShape& mesh);

/// COLLECTIVE over `control`, which has the ranks of the mesh. Returns the tensors of all pipeline ranks;
/// `own` are the tensors of this one. A tensor on two pipeline ranks is listed once. Costs one
/// comm::broadcast_text() for each pipeline rank.
std::vector<checkpoint::CutTensor> gather_tensors(const std::vector<checkpoint::CutTensor>& own,
                                                  const layout::MeshShape& mesh, comm::Communicator& control);

}  // namespace argosy::resume
