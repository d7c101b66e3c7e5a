// Counts the bytes of tensors without data (LibTorch's device meta), which are those of the real tensors.
#pragma once

#include <cstdint>

namespace argosy::plan {

class DryMemory {
  public:
    /// Replaces LibTorch's allocator of the device meta, for the rest of the process. Earlier tensors are not
    /// counted.
    static DryMemory& install();

    int64_t current_bytes() const { return current_bytes_; }
    int64_t peak_bytes() const { return peak_bytes_; }  // since the last reset_peak()
    void reset_peak() { peak_bytes_ = current_bytes_; }

  private:
    friend class MetaAllocator;
    DryMemory() = default;
    int64_t current_bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace argosy::plan
