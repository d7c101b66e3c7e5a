// Chooses the parts of the tensors that this rank writes in a save, and copies them to host memory, from
// which a background thread writes them while training goes on.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/file_writer.h"
#include "cuda/memory.h"
#include "resume/run_state.h"

namespace argosy::resume {

/// Minimum size of a part. Ranks that hold the same box split it by rows if each gets this many bytes;
/// otherwise one of them, chosen by the tensor's name, writes the whole box.
inline constexpr int64_t kMinPartBytes = 64 << 10;

struct ShardPart {
    checkpoint::Piece piece;
    at::Tensor rows;  // a view of the piece's elements in memory, whose type may differ from the piece's
};

/// The parts of the tensors that this rank writes, none of them empty. The parts of all ranks together cover
/// each tensor exactly once. `type`: element type on disk; unset keeps the type of each tensor.
std::vector<ShardPart> shard_parts(std::span<const HeldTensor> tensors,
                                   std::optional<h5::ElementType> type = std::nullopt);

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

}  // namespace argosy::resume
