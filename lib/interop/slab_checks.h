// Compares a checkpoint's checks with its bytes while these pass by on their way elsewhere, so that nothing
// is read twice.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/hash.h"

namespace argosy::interop {

/// Of one tensor, whose elements pass in order, from the first to the last. One thread.
class SlabChecks {
  public:
    /// REQUIRES: checkpoint outlives it; the tensor is one of its own.
    SlabChecks(const checkpoint::Checkpoint& checkpoint, const checkpoint::StoredTensor& tensor);

    /// The next elements. REQUIRES: `block` is made of consecutive ones.
    void add(const layout::Slab& block, std::span<const std::byte> bytes);

    /// After the last: UserError, naming file, tensor, expected and found, where a slab's check differs.
    void finish() const;

  private:
    const checkpoint::Checkpoint& checkpoint_;
    const checkpoint::StoredTensor& tensor_;
    std::vector<checkpoint::Hasher> hashers_;  // of each slab
};

}  // namespace argosy::interop
