#include "observe/memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <malloc.h>

#include <atomic>
#include <fstream>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "gpu/device.h"

namespace argosy::observe {

/// Counts the bytes that LibTorch's CPU allocator hands out. Each block starts with a prefix that stores its
/// size and owner, because the deleter is a plain function and gets only a pointer. The prefix is one
/// alignment unit long, so the tensor behind it is aligned as c10 requires.
class CountingAllocator final : public c10::Allocator {
  public:
    explicit CountingAllocator(c10::Allocator& inner) : inner_(inner), free_inner_(inner.raw_deleter()) {
        ARGOSY_CHECK(free_inner_ != nullptr, "the CPU allocator hands out no plain pointers");
    }

    c10::DataPtr allocate(size_t num_bytes) override {
        if (num_bytes == 0) return {nullptr, nullptr, &free_counted, c10::DeviceType::CPU};
        auto* start = static_cast<char*>(allocate_inner(num_bytes));
        new (start) Prefix{this, num_bytes};
        add(static_cast<int64_t>(num_bytes));
        void* data = start + kPrefixBytes;
        return {data, data, &free_counted, c10::DeviceType::CPU};
    }

    c10::DeleterFnPtr raw_deleter() const override { return &free_counted; }

    void copy_data(void* out, const void* in, size_t num_bytes) const override {
        default_copy_data(out, in, num_bytes);
    }

    int64_t current_bytes() const { return current_bytes_.load(std::memory_order_relaxed); }
    int64_t peak_bytes() const { return peak_bytes_.load(std::memory_order_relaxed); }
    void reset_peak() { peak_bytes_.store(current_bytes(), std::memory_order_relaxed); }

  private:
    struct Prefix {
        CountingAllocator* owner;
        size_t num_bytes;
    };
    static constexpr size_t kPrefixBytes = c10::gAlignment;
    static_assert(sizeof(Prefix) <= kPrefixBytes);

    static void free_counted(void* data) {
        if (data == nullptr) return;
        char* start = static_cast<char*>(data) - kPrefixBytes;
        const Prefix prefix = *reinterpret_cast<Prefix*>(start);
        prefix.owner->current_bytes_.fetch_sub(static_cast<int64_t>(prefix.num_bytes),
                                               std::memory_order_relaxed);
        prefix.owner->free_inner_(start);
    }

    /// Allocates memory for prefix and block. Turns a failure into MemoryError, because LibTorch throws a
    /// general error that names only the size.
    void* allocate_inner(size_t num_bytes) {
        try {
            return inner_.raw_allocate(num_bytes + kPrefixBytes);
        } catch (const c10::OutOfMemoryError&) {
            throw;
        } catch (const std::exception&) {
            throw MemoryError({num_bytes, static_cast<size_t>(current_bytes())},
                              "no memory for {} bytes of a tensor, beside {} bytes that tensors hold",
                              num_bytes, current_bytes());
        }
    }

    void add(int64_t num_bytes) {
        const int64_t current = current_bytes_.fetch_add(num_bytes, std::memory_order_relaxed) + num_bytes;
        int64_t peak = peak_bytes();
        while (peak < current &&
               !peak_bytes_.compare_exchange_weak(peak, current, std::memory_order_relaxed)) {
        }
    }

    c10::Allocator& inner_;
    c10::DeleterFnPtr free_inner_;
    std::atomic<int64_t> current_bytes_ = 0, peak_bytes_ = 0;
};

MemoryMeter MemoryMeter::install() {
    static std::atomic<bool> installed = false;
    ARGOSY_CHECK(!installed.exchange(true), "a second memory meter in one process");
    auto* allocator = new CountingAllocator(*c10::GetCPUAllocator());
    // c10 silently ignores a registration with a lower priority than the present one.
    c10::SetCPUAllocator(allocator, std::numeric_limits<uint8_t>::max());
    ARGOSY_CHECK(c10::GetCPUAllocator() == allocator);
    return MemoryMeter(*allocator);
}

int64_t MemoryMeter::current_bytes() const {
    const auto gpu = gpu::memory();
    return gpu ? gpu->allocated_bytes : allocator_->current_bytes();
}

int64_t MemoryMeter::peak_bytes() const {
    const auto gpu = gpu::memory();
    return gpu ? gpu->peak_allocated_bytes : allocator_->peak_bytes();
}

void MemoryMeter::reset_peak() {
    allocator_->reset_peak();
    gpu::reset_peak_memory();
}

StepMemory MemoryMeter::of_step() const {
    StepMemory memory{peak_bytes(), resident_memory().now_bytes};
    if (const auto gpu = gpu::memory()) memory.allocator = {gpu->peak_reserved_bytes, gpu->num_retries};
    return memory;
}

ResidentMemory resident_memory() {
    ResidentMemory memory;
    std::ifstream status("/proc/self/status");
    std::string key;
    while (status >> key) {
        int64_t kibibytes = 0;
        if (key == "VmRSS:" && status >> kibibytes) memory.now_bytes = kibibytes * 1024;
        if (key == "VmHWM:" && status >> kibibytes) memory.peak_bytes = kibibytes * 1024;
        status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
    }
    return memory;
}

void keep_freed_memory() {
    constexpr int kGrowBytes = 64 << 20;
    // Never map a block by itself, never return the end of the heap to the kernel, and grow the heap in large
    // steps. (M_MMAP_THRESHOLD could also prevent the mappings, but older glibc limits it to 32 MiB.)
    const bool kept = mallopt(M_MMAP_MAX, 0) == 1 && mallopt(M_TRIM_THRESHOLD, -1) == 1 &&
                      mallopt(M_TOP_PAD, kGrowBytes) == 1;
    if (!kept) spdlog::debug("this C library's malloc cannot be told to keep freed memory");
}

}  // namespace argosy::observe
