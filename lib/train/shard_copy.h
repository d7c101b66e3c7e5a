// What this rank writes of a save, and its copy in host memory, from which a thread writes while training
// goes on.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/file_writer.h"
#include "cuda/memory.h"
#include "train/run_state.h"

namespace argosy::train {

/// Ranks that hold the same box cut it by rows among themselves where each gets this much; else one of them,
/// chosen by the tensor's name, writes it.
inline constexpr int64_t kLeastPartBytes = 64 << 10;

struct ShardPart {
    checkpoint::Piece piece;
    at::Tensor rows;  // the piece's elements, as they are held: maybe in another type than the piece's
};

/// The parts of the tensors that this rank writes, none of them empty. Over all ranks they cover each tensor
/// exactly once. `type`: of the elements on disk, where it is not that of the tensors.
std::vector<ShardPart> shard_parts(std::span<const HeldTensor> tensors,
                                   std::optional<h5::ElementType> type = std::nullopt);

/// Memory for the copies of one save after another: allocated at the first and then used again.
class ShardCopy {
  public:
    /// What the parts hold now, converted to their pieces' types. Valid until the next call; of each part, in
    /// order.
    std::vector<std::span<const std::byte>> copy(const std::vector<ShardPart>& parts);

    int64_t num_bytes() const { return num_bytes_; }

  private:
    void make_room(int64_t num_bytes, bool from_gpu);

    std::unique_ptr<std::byte[]> pageable_;
    std::optional<cuda::PinnedMemory> pinned_;  // instead, for what a GPU holds, where it can be had
    std::byte* memory_ = nullptr;
    int64_t num_bytes_ = 0;
};

}  // namespace argosy::train
