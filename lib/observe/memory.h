// How much memory this process holds: tensors counted at LibTorch's allocators, and all of the host's as the
// kernel sees it. `MemoryMeter::install` and `keep_freed_memory` change the whole process: an executable
// calls each once, at the top of main, before its first tensor and before other threads start.
#pragma once

#include <cstdint>
#include <optional>

#include "observe/metrics.h"

namespace argosy::observe {

class CountingAllocator;

/// Bytes of tensors where this rank computes. On a processor: what was asked of the allocator, without its
/// rounding. What a library takes from malloc by itself (GEMM packing buffers, MPI) is not in it;
/// resident_memory() has that too. On a GPU (gpu::use): what LibTorch's caching allocator says. Copies of a
/// meter read the same counters. Any thread.
class MemoryMeter {
  public:
    /// Replaces LibTorch's CPU allocator, for the rest of the process, by one that counts and then asks the
    /// one before it. Tensors made earlier are not counted. Where there is no memory it throws MemoryError.
    /// REQUIRES: the first call in this process; gpu::use, if at all, comes before.
    static MemoryMeter install();

    int64_t current_bytes() const;
    int64_t peak_bytes() const;  // the most since install() or the last reset_peak()
    void reset_peak();           // a new peak starts at what is held now

    /// Since the last reset_peak(); none on a processor.
    std::optional<AllocatorFigures> allocator() const;

  private:
    explicit MemoryMeter(CountingAllocator& allocator) : allocator_(&allocator) {}
    CountingAllocator* allocator_;  // never deleted: tensors may outlive everything else
};

/// Physical memory of this process, from /proc/self/status; 0 where that does not say.
struct ResidentMemory {
    int64_t now_bytes = 0;
    int64_t peak_bytes = 0;  // since the process started
};
ResidentMemory resident_memory();

/// Makes malloc keep what is freed. By default glibc maps each large block anew and unmaps it when it is
/// freed, so every activation of every step is paged in again, zeroed by the kernel, 4 KiB at a time;
/// training on CPU was measured 15 % faster without. The price: the process stays as large as its peak.
void keep_freed_memory();

}  // namespace argosy::observe
