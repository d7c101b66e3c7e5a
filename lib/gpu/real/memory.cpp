#include "gpu/memory.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

namespace argosy::gpu {

namespace allocator = c10::cuda::CUDACachingAllocator;

MemoryFigures memory() {
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    const auto stats = allocator::getDeviceStats(c10::cuda::current_device());
    return {.allocated_bytes = stats.allocated_bytes[kAll].current,
            .peak_allocated_bytes = stats.allocated_bytes[kAll].peak,
            .reserved_bytes = stats.reserved_bytes[kAll].current,
            .peak_reserved_bytes = stats.reserved_bytes[kAll].peak,
            .num_retries = stats.num_alloc_retries};
}

void reset_peak_memory() { allocator::resetPeakStats(c10::cuda::current_device()); }

}  // namespace argosy::gpu
