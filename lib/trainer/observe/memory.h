// The memory of this process: bytes of tensors, counted at LibTorch's allocators, and the host's resident
// set, as the kernel reports it. `MemoryMeter::install` changes the whole process: an executable calls it
// once, at the top of main, before its first tensor and before other threads start.
#pragma once

#include <cstdint>

#include "observe/metrics.h"

namespace argosy::observe {

class CountingAllocator;

/// Bytes of tensors on this rank's device. On a CPU, the meter counts the bytes requested from LibTorch's
/// allocator, without the allocator's rounding. Memory that a library takes from malloc (GEMM packing
/// buffers, MPI) is not counted here, but is part of resident_bytes(). On a GPU (gpu::use), the meter
/// returns the figures of LibTorch's caching allocator. Copies of a meter share the same counters. Any thread
/// may call it.
class MemoryMeter {
  public:
    /// Replaces LibTorch's CPU allocator, for the rest of the process, by one that counts, has large tensors
    /// in a TensorHeap and calls the original for the others. Earlier tensors are not counted. The new
    /// allocator throws MemoryError when memory runs out. REQUIRES: this is the first call in the process,
    /// and gpu::use, if used, was called before.
    static MemoryMeter install();

    int64_t current_bytes() const;
    int64_t peak_bytes() const;  // the maximum since install() or the last reset_peak()
    void reset_peak();           // starts a new peak at the present bytes

    /// The figures of the step that began with the last reset_peak().
    StepMemory of_step() const;

  private:
    explicit MemoryMeter(CountingAllocator& allocator) : allocator_(&allocator) {}
    CountingAllocator* allocator_;  // never deleted: tensors may outlive everything else
};

/// Physical memory of this process, from /proc/self/status; 0 if that file lacks the entry.
int64_t resident_bytes();

}  // namespace argosy::observe
