// The slabs that this rank writes in a save, and their copy in host memory, from which a background thread
// writes them while training goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/plan.h"
#include "cuda/memory.h"
#include "resume/run_state.h"

namespace argosy::resume {

/// The slabs that this rank, writer `writer` of the plan, writes: those of checkpoint::slabs_of, in that
/// order, with the types that the plan gives their tensors; the elements are views of those of `held`.
/// REQUIRES: each slab is rows of a slab of `held`.
std::vector<HeldSlab> written_slabs(std::span<const HeldSlab> held, const checkpoint::Plan& plan, int writer);

/// Host memory for the copy of one save after another, allocated at the first save and then reused.
class ShardCopy {
  public:
    /// Copies the slabs' elements, converted to the types of their tensors, and waits for the copy: the
    /// elements may change after it returns. Returns the bytes of each slab, in order, valid until the next
    /// call.
    std::vector<std::span<const std::byte>> copy(const std::vector<HeldSlab>& slabs);

    int64_t num_bytes() const { return num_bytes_; }

  private:
    void make_room(int64_t num_bytes, bool from_gpu);

    std::unique_ptr<std::byte[]> pageable_;
    std::optional<cuda::PinnedMemory> pinned_;  // used instead for slabs on a GPU, if it can be allocated
    std::byte* memory_ = nullptr;               // points to pageable_ or pinned_
    int64_t num_bytes_ = 0;
};

}  // namespace argosy::resume
