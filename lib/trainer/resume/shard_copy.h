// The slabs that this rank writes in a save, and their copy in host memory, from which a background thread
// writes them while training goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/save_plan.h"
#include "cuda/memory.h"
#include "resume/run_state.h"

namespace argosy::resume {

/// Returns the slabs that writer `writer` of the plan (this rank) writes, in the order of
/// checkpoint::slabs_of(). HeldSlab::tensor has the plan's element type. HeldSlab::elements is a view of
/// `held`, whose type may differ. REQUIRES: each slab consists of rows of a slab of `held`.
std::vector<HeldSlab> written_slabs(std::span<const HeldSlab> held, const checkpoint::SavePlan& plan,
                                    int writer);

/// Host memory for the copy of one save after another, allocated at the first save and then reused.
class ShardCopy {
  public:
    /// Copies the elements of the slabs, converted to the type in HeldSlab::tensor. Waits for the copy, so
    /// the elements may change once copy() returns. Returns the bytes of each slab, in order; they are valid
    /// until the next call.
    std::vector<std::span<const std::byte>> copy(const std::vector<HeldSlab>& slabs);

    int64_t num_bytes() const { return num_bytes_; }

  private:
    void make_room(int64_t num_bytes, bool from_gpu);

    std::unique_ptr<std::byte[]> pageable_;
    std::optional<cuda::PinnedMemory> pinned_;  // for slabs on a GPU, if it can be allocated
    std::byte* memory_ = nullptr;               // points to pageable_ or pinned_
    int64_t num_bytes_ = 0;
};

}  // namespace argosy::resume
