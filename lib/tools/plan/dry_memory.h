// Counts the bytes of tensors without data (LibTorch's device meta), which are those of the real tensors, for
// each thread apart.
#pragma once

#include <cstdint>

namespace argosy::plan {

class DryMemory {
  public:
    /// Replaces LibTorch's allocator of the device meta, for the rest of the process. Earlier tensors are not
    /// counted. Returns the memory of the calling thread. REQUIRES: the thread that makes a tensor frees it.
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
