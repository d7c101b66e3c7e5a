// The memory of this process: bytes of tensors, counted at LibTorch's allocators, and the host's resident
// set, as the kernel reports it. `MemoryMeter::install` changes the whole process: an executable calls it
// once, at the top of main, before its first tensor and before other threads start.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "observe/metrics.h"

namespace argosy::observe {

class CountingAllocator;

/// The tensors' blocks during one operation, or phase of the run, which MemoryMeter::enter() has named.
struct MemorySnapshot {
    struct Block {
        const void* data;
        int64_t num_bytes;
        std::string operation;  // in which it was allocated; "" on a GPU
    };
    static constexpr size_t kMaxBlocks = 128;

    std::string operation;
    int64_t bytes = 0;
    int64_t peak_bytes = 0;                             // as MemoryMeter::peak_bytes()
    std::string peak_operation = {};                    // "" on a GPU
    std::map<std::string, int64_t> bytes_by_operation;  // of all blocks; empty on a GPU
    std::vector<Block> largest;                         // kMaxBlocks of them, the largest first
};

/// Bytes of tensors on this rank's device. On a CPU, the meter counts the bytes requested from LibTorch's
/// allocator, without the allocator's rounding. Memory that a library takes from malloc (GEMM packing
/// buffers, MPI) is not counted here, but is part of resident_memory(). On a GPU (gpu::use), the meter
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

    /// Names the operation, or phase of the run, that begins now. Blocks that any thread allocates from now
    /// on have its name.
    void enter(std::string operation) const;
    MemorySnapshot snapshot() const;
    /// Takes a snapshot as soon as tensors hold this many bytes; on a GPU, does nothing.
    void take_snapshot_at(int64_t bytes) const;
    /// Returns that snapshot, if it was taken, and ends the request.
    std::optional<MemorySnapshot> taken_snapshot() const;
    /// A snapshot of the last request that failed, before an exception freed anything. On a GPU, none.
    std::optional<MemorySnapshot> failed_snapshot() const;

  private:
    explicit MemoryMeter(CountingAllocator& allocator) : allocator_(&allocator) {}
    CountingAllocator* allocator_;  // never deleted: tensors may outlive everything else
};

/// Physical memory of this process, from /proc/self/status; 0 if that file lacks the entry.
struct ResidentMemory {
    int64_t now_bytes = 0;
    int64_t peak_bytes = 0;  // since the process started
};
ResidentMemory resident_memory();

}  // namespace argosy::observe
