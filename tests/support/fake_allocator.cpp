#include "support/fake_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>

#include "gpu/device.h"

namespace argosy::testing {
namespace {

constexpr int64_t kContextBytes = 300 << 20;  // memory that CUDA itself uses
// observe::MemoryMeter wraps the CPU allocator and adds this many bytes to each request. A real GPU's
// allocator is not wrapped, so a reported request leaves these bytes out.
constexpr int64_t kMeterBytes = c10::gAlignment;

int64_t limit_from_environment() {
    const char* limit = std::getenv("ARGOSY_FAKE_GPU_BYTES");
    return limit ? std::atoll(limit) : int64_t{1} << 40;
}

class FakeAllocator final : public c10::Allocator {
  public:
    explicit FakeAllocator(c10::Allocator& inner) : inner_(inner) {}

    c10::DataPtr allocate(size_t num_bytes) override {
        if (num_bytes == 0) return {nullptr, nullptr, &free_counted, c10::DeviceType::CPU};
        const auto size = static_cast<int64_t>(num_bytes);
        take(size);
        auto* start = static_cast<char*>(inner_.raw_allocate(num_bytes + 2 * kAlignment));
        const auto begin = reinterpret_cast<uintptr_t>(start) / kAlignment * kAlignment + 2 * kAlignment;
        auto* data = reinterpret_cast<char*>(begin);
        new (data - sizeof(Prefix)) Prefix{this, size, start};
        return {data, data, &free_counted, c10::DeviceType::CPU};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &free_counted; }
    void copy_data(void* out, const void* in, size_t num_bytes) const override {
        default_copy_data(out, in, num_bytes);
    }

    gpu::MemoryFigures figures() {
        const std::lock_guard lock(mutex_);
        return figures_;
    }
    std::optional<gpu::AllocationFailure> failure() {
        const std::lock_guard lock(mutex_);
        return failure_;
    }
    void reset_peak() {
        const std::lock_guard lock(mutex_);
        figures_.peak_allocated_bytes = figures_.allocated_bytes;
        figures_.peak_reserved_bytes = figures_.reserved_bytes;
    }

  private:
    struct Prefix {
        FakeAllocator* owner;
        int64_t num_bytes;
        char* start;
    };
    /// The alignment of LibTorch's GPU allocator. The choice of cuBLASLt's algorithms depends on it.
    static constexpr size_t kAlignment = 512;

    static void free_counted(void* data) {
        if (data == nullptr) return;
        const Prefix prefix = *reinterpret_cast<Prefix*>(static_cast<char*>(data) - sizeof(Prefix));
        prefix.owner->give_back(prefix.num_bytes);
        prefix.owner->inner_.raw_deallocate(prefix.start);
    }

    void take(int64_t size) {
        const std::lock_guard lock(mutex_);
        if (const auto cached = cached_.find(size); cached != cached_.end()) {
            if (--cached->second == 0) cached_.erase(cached);
        } else {
            reserve(size);
        }
        figures_.allocated_bytes += size;
        figures_.peak_allocated_bytes = std::max(figures_.peak_allocated_bytes, figures_.allocated_bytes);
    }

    void reserve(int64_t size) {
        if (figures_.reserved_bytes + size > limit_) {
            cached_.clear();
            figures_.reserved_bytes = figures_.allocated_bytes;
            ++figures_.num_retries;
        }
        if (figures_.reserved_bytes + size > limit_) refuse(size);
        figures_.reserved_bytes += size;
        figures_.peak_reserved_bytes = std::max(figures_.peak_reserved_bytes, figures_.reserved_bytes);
    }

    [[noreturn]] void refuse(int64_t size) {
        failure_ = {.requested_bytes = size - kMeterBytes,
                    .allocated_bytes = figures_.allocated_bytes,
                    .reserved_bytes = figures_.reserved_bytes,
                    .device_free_bytes = limit_ - figures_.reserved_bytes,
                    .device_total_bytes = limit_ + kContextBytes};
        TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", size, " bytes.");
    }

    void give_back(int64_t size) {
        const std::lock_guard lock(mutex_);
        figures_.allocated_bytes -= size;
        ++cached_[size];
    }

    c10::Allocator& inner_;
    const int64_t limit_ = limit_from_environment();
    std::mutex mutex_;
    gpu::MemoryFigures figures_;
    std::optional<gpu::AllocationFailure> failure_;
    std::map<int64_t, int64_t> cached_;  // number of blocks by size
};

FakeAllocator* installed = nullptr;  // never deleted: tensors may outlive everything else

}  // namespace

void install_fake_allocator() {
    if (installed) return;
    installed = new FakeAllocator(*c10::GetCPUAllocator());
    c10::SetCPUAllocator(installed, /*priority=*/1);
}

}  // namespace argosy::testing

namespace argosy::gpu {

using testing::installed;

std::optional<MemoryFigures> memory() {
    return installed ? std::optional(installed->figures()) : std::nullopt;
}
std::shared_ptr<std::byte> allocate(size_t num_bytes) {
    auto owner = std::make_shared<c10::DataPtr>(c10::GetCPUAllocator()->allocate(num_bytes));
    return {owner, static_cast<std::byte*>(owner->get())};
}

void reset_peak_memory() {
    if (installed) installed->reset_peak();
}
std::optional<AllocationFailure> last_allocation_failure() {
    return installed ? installed->failure() : std::nullopt;
}

}  // namespace argosy::gpu
