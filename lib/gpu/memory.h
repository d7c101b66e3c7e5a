// LibTorch's caching allocator on this thread's GPU, which everything there takes memory from: an allocation
// function, its memory figures, and its last failure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace argosy::gpu {

struct MemoryFigures {
    int64_t allocated_bytes = 0, peak_allocated_bytes = 0;  // by tensors
    int64_t reserved_bytes = 0, peak_reserved_bytes = 0;    // taken from the GPU for them
    int64_t num_retries = 0;  // allocations that first had to free all cached memory
};
/// Empty before use() (gpu/device.h).
std::optional<MemoryFigures> memory();

/// Allocates memory for other things than tensors, in the order of the current stream, like a tensor's
/// memory. Throws the exception of a tensor's allocation if there is too little memory.
std::shared_ptr<std::byte> allocate(size_t num_bytes);

/// Resets the peaks to the current figures. Does nothing before use().
void reset_peak_memory();

/// A failed allocation, and the memory in use at that time. The allocator had freed all cached memory before
/// it failed, unless a graph was being recorded.
struct AllocationFailure {
    int64_t wanted_bytes = 0;
    int64_t allocated_bytes = 0, reserved_bytes = 0;
    int64_t device_free_bytes = 0, device_total_bytes = 0;
};
/// The last failure in this process, on any thread. Any thread may ask.
std::optional<AllocationFailure> last_allocation_failure();

}  // namespace argosy::gpu
