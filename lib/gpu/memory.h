// LibTorch's caching allocator on this thread's GPU: the one that everything on it takes memory from, what it holds,
// and what it could not get.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace argosy::gpu {

struct MemoryFigures {
    int64_t allocated_bytes = 0, peak_allocated_bytes = 0;  // by tensors
    int64_t reserved_bytes = 0, peak_reserved_bytes = 0;    // taken from the GPU for them
    int64_t num_retries = 0;  // allocations for which everything unused had to be given back first
};
/// None before use() (gpu/device.h).
std::optional<MemoryFigures> memory();

/// For what is no tensor; behind what is on the current stream, as a tensor's memory is. Throws as a tensor
/// does where there is none.
std::shared_ptr<std::byte> allocate(size_t num_bytes);

/// New peaks begin at what is held now. Does nothing before use().
void reset_peak_memory();

/// Memory that could not be had, and what was held when it was asked for: whatever was unused had been given
/// back by then, except while a graph is recorded.
struct AllocationFailure {
    int64_t wanted_bytes = 0;
    int64_t allocated_bytes = 0, reserved_bytes = 0;
    int64_t device_free_bytes = 0, device_total_bytes = 0;
};
/// The last one of this process, on any thread. Any thread may ask.
std::optional<AllocationFailure> last_allocation_failure();

}  // namespace argosy::gpu
