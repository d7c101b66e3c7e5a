// Compares a checkpoint's checks with its bytes while a transfer reads them, so that nothing is read twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/hash.h"
#include "layout/param_spec.h"

namespace argosy::interop {

/// The checks of one tensor. The elements are added in order, from the first to the last. One thread.
class SlabChecks {
  public:
    /// UserError if the checks cannot be read. REQUIRES: `checkpoint` outlives this object, and `tensor` is
    /// one of its tensors().
    SlabChecks(const checkpoint::Checkpoint& checkpoint, const checkpoint::TensorInfo& tensor);

    /// Adds the next elements. REQUIRES: `slab` consists of consecutive elements.
    void add(const layout::Slab& slab, std::span<const std::byte> bytes);

    /// Call it after the last add(): UserError, naming file, tensor, expected and found, if a slab's check
    /// differs.
    void finish() const;

  private:
    const checkpoint::Checkpoint& checkpoint_;
    const checkpoint::TensorInfo& tensor_;
    std::vector<checkpoint::StoredSlab> slabs_;
    std::vector<checkpoint::Hasher> hashers_;  // one per slab
};

}  // namespace argosy::interop
