#include "gpu/memory.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <mutex>

#include "gpu/with_cuda/watch.h"

namespace argosy::gpu {

namespace allocator = c10::cuda::CUDACachingAllocator;

namespace {

constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

/// Never freed: LibTorch has one allocator for the process, and keeps its observer forever.
struct Record {
    std::mutex mutex;
    std::optional<AllocationFailure> last;
};
Record& record() {
    static auto& only = *new Record;
    return only;
}

void note(int64_t device, size_t wanted_bytes, size_t total_bytes, size_t free_bytes) {
    const auto stats = allocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
    const std::lock_guard lock(record().mutex);
    record().last = {.wanted_bytes = static_cast<int64_t>(wanted_bytes),
                     .allocated_bytes = stats.allocated_bytes[kAll].current,
                     .reserved_bytes = stats.reserved_bytes[kAll].current,
                     .device_free_bytes = static_cast<int64_t>(free_bytes),
                     .device_total_bytes = static_cast<int64_t>(total_bytes)};
}

}  // namespace

void watch_allocations() {
    static std::once_flag once;
    std::call_once(once, [] { allocator::attachOutOfMemoryObserver(note); });
}

std::optional<MemoryFigures> memory() {
    if (!allocator::get()->initialized()) return std::nullopt;
    const auto stats = allocator::getDeviceStats(c10::cuda::current_device());
    return MemoryFigures{.allocated_bytes = stats.allocated_bytes[kAll].current,
                         .peak_allocated_bytes = stats.allocated_bytes[kAll].peak,
                         .reserved_bytes = stats.reserved_bytes[kAll].current,
                         .peak_reserved_bytes = stats.reserved_bytes[kAll].peak,
                         .num_retries = stats.num_alloc_retries};
}

std::shared_ptr<std::byte> allocate(size_t num_bytes) {
    auto owner = std::make_shared<c10::DataPtr>(allocator::get()->allocate(num_bytes));
    return {owner, static_cast<std::byte*>(owner->get())};
}

void reset_peak_memory() {
    if (allocator::get()->initialized()) allocator::resetPeakStats(c10::cuda::current_device());
}

std::optional<AllocationFailure> last_allocation_failure() {
    const std::lock_guard lock(record().mutex);
    return record().last;
}

}  // namespace argosy::gpu
