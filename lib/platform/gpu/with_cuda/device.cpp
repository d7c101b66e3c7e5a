#include "gpu/device.h"

#include <ATen/Context.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <mutex>

#include "base/environment.h"
#include "base/error.h"
#include "cuda/device.h"

namespace argosy::gpu {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

/// The last failed allocation. The record is never freed, because LibTorch's allocator keeps its observer,
/// note(), until the process ends.
struct Record {
    std::mutex mutex;
    std::optional<AllocationFailure> last;
};
Record& record() {
    static auto& only = *new Record;
    return only;
}

void note(int64_t device, size_t requested_bytes, size_t total_bytes, size_t free_bytes) {
    const auto stats = allocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
    const std::lock_guard lock(record().mutex);
    record().last = {.requested_bytes = static_cast<int64_t>(requested_bytes),
                     .allocated_bytes = stats.allocated_bytes[kAll].current,
                     .reserved_bytes = stats.reserved_bytes[kAll].current,
                     .device_free_bytes = static_cast<int64_t>(free_bytes),
                     .device_total_bytes = static_cast<int64_t>(total_bytes)};
}

/// Starts to record failures of LibTorch's allocator for last_allocation_failure(). REQUIRES: the allocator
/// is ready.
void watch_allocations() {
    static std::once_flag once;
    std::call_once(once, [] { allocator::attachOutOfMemoryObserver(note); });
}

}  // namespace

// The allocator uses segments that grow in place, because they waste no memory between blocks of different
// sizes. A user's setting of LibTorch's own variable takes precedence.
c10::Device use(int number) {
    cuda::set_device(number);
    if (!Environment::read().torch_allocator_is_set) {
        c10::CachingAllocator::setAllocatorSettings("expandable_segments:True");
    }
    at::globalContext().lazyInitDevice(c10::kCUDA);  // makes LibTorch's allocator, which the next lines need
    const auto index = static_cast<c10::DeviceIndex>(number);
    at::globalContext().setFloat32MatmulPrecision("highest");  // overrides TORCH_ALLOW_TF32_CUBLAS_OVERRIDE
    c10::cuda::set_device(index);
    watch_allocations();
    c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, index));
    return {c10::kCUDA, index};
}

bool holds(const at::Tensor& x) { return x.is_cuda(); }

void synchronize() {
    if (cuda::device_count() == 0) return;  // LibTorch would require a driver
    c10::cuda::getCurrentCUDAStream().synchronize();
}

void free_cached_memory() { allocator::emptyCache(); }

CUstream_st* current_stream() { return c10::cuda::getCurrentCUDAStream().stream(); }

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
