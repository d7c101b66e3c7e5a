// The parts of the tensors that this rank writes in a save, and their copy in host memory, from
// which a background thread writes them while training goes on.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/file_writer.h"
#include "checkpoint/placement.h"
#include "comm/communicator.h"
#include "cuda/memory.h"
#include "layout/param_spec.h"
#include "resume/run_state.h"

namespace argosy::resume {

struct ShardPart {
    checkpoint::Piece piece;
    at::Tensor rows;  // a view of the piece's elements in memory, whose type may differ from the piece's
};

/// The parts that this rank, writer `writer` of the plan, writes: those of pieces_of(plan, writer), in that
/// order. REQUIRES: `tensors` has every tensor of which the plan gives this writer a piece, and the piece
/// lies in its box.
std::vector<ShardPart> shard_parts(std::span<const HeldTensor> tensors, const checkpoint::Plan& plan,
                                   int writer);

/// Host memory for the copy of one save after another, allocated at the first save and then reused.
class ShardCopy {
  public:
    /// Copies the parts' elements, converted to their pieces' types, and waits for the copy: the parts may
    /// change after it returns. Returns the bytes of each part, in order, valid until the next call.
    std::vector<std::span<const std::byte>> copy(const std::vector<ShardPart>& parts);

    int64_t num_bytes() const { return num_bytes_; }

  private:
    void make_room(int64_t num_bytes, bool from_gpu);

    std::unique_ptr<std::byte[]> pageable_;
    std::optional<cuda::PinnedMemory> pinned_;  // used instead for parts on a GPU, if it can be allocated
    std::byte* memory_ = nullptr;               // points to pageable_ or pinned_
    int64_t num_bytes_ = 0;
};

// How a run's tensors are cut over the ranks that write them: the placement of parameters on the mesh
// (layout/param_spec.h) as the plan of a save (checkpoint/placement.h). Ranks that hold the same elements
// share the writing.

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
