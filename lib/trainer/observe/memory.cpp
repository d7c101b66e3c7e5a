#include "observe/memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <limits>
#include <mutex>
#include <new>
#include <string>

#include "base/error.h"
#include "gpu/device.h"
#include "observe/tensor_heap.h"

namespace argosy::observe {

// The address sanitizer sees what happens past the ends of LibTorch's blocks, not of those in a heap of ours.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kHasHeap = false;
#else
constexpr bool kHasHeap = true;
#endif

/// Counts the bytes of tensors. Large ones are in a heap, small ones come from LibTorch's CPU allocator. Each
/// block starts with a prefix that stores its size and owner, because the deleter is a plain function and
/// gets only a pointer. The prefix is one alignment unit long, so the tensor behind it is aligned as c10
/// requires.
class CountingAllocator final : public c10::Allocator {
  public:
    explicit CountingAllocator(c10::Allocator& inner) : inner_(inner), free_inner_(inner.raw_deleter()) {
        ARGOSY_CHECK(free_inner_ != nullptr, "the CPU allocator hands out no plain pointers");
    }

    c10::DataPtr allocate(size_t num_bytes) override {
        if (num_bytes == 0) return {nullptr, nullptr, &free_counted, c10::DeviceType::CPU};
        auto* start = static_cast<char*>(allocate_block(num_bytes + kPrefixBytes));
        new (start) Prefix{this, num_bytes};
        add(static_cast<int64_t>(num_bytes));
        void* data = start + kPrefixBytes;
        return {data, data, &free_counted, c10::DeviceType::CPU};
    }

    c10::DeleterFnPtr raw_deleter() const override { return &free_counted; }

    void copy_data(void* out, const void* in, size_t num_bytes) const override {
        default_copy_data(out, in, num_bytes);
    }

    int64_t current_bytes() const {
        const std::lock_guard lock(mutex_);
        return current_bytes_;
    }
    int64_t peak_bytes() const {
        const std::lock_guard lock(mutex_);
        return peak_bytes_;
    }
    void reset_peak() {
        const std::lock_guard lock(mutex_);
        peak_bytes_ = current_bytes_;
    }

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
        auto& prefix = *reinterpret_cast<Prefix*>(start);
        CountingAllocator& owner = *prefix.owner;
        const size_t block_bytes = prefix.num_bytes + kPrefixBytes;
        owner.add(-static_cast<int64_t>(prefix.num_bytes));
        owner.free_block(start, block_bytes);
    }

    bool is_large(size_t block_bytes) const {
        return has_heap_ && static_cast<int64_t>(block_bytes) >= TensorHeap::kMinBytes;
    }

    void* allocate_block(size_t block_bytes) {
        if (is_large(block_bytes)) {
            if (void* const block = heap_.allocate(static_cast<int64_t>(block_bytes))) return block;
            fail(block_bytes);
        }
        try {
            return inner_.raw_allocate(block_bytes);
        } catch (const c10::OutOfMemoryError&) {
            throw;
        } catch (const std::exception&) {  // LibTorch throws a general error that names only the size
            fail(block_bytes);
        }
    }

    void free_block(char* start, size_t block_bytes) {
        if (is_large(block_bytes)) {
            heap_.free(start, static_cast<int64_t>(block_bytes));
        } else {
            free_inner_(start);
        }
    }

    [[noreturn]] void fail(size_t block_bytes) {
        const size_t num_bytes = block_bytes - kPrefixBytes;
        throw MemoryError({num_bytes, static_cast<size_t>(current_bytes())},
                          "no memory for {} bytes of a tensor, beside {} bytes that tensors hold", num_bytes,
                          current_bytes());
    }

    void add(int64_t num_bytes) {
        const std::lock_guard lock(mutex_);
        current_bytes_ += num_bytes;
        peak_bytes_ = std::max(peak_bytes_, current_bytes_);
    }

    c10::Allocator& inner_;
    c10::DeleterFnPtr free_inner_;
    // Beside a GPU the tensors of the host are few, and the stand-in for a GPU of tests counts its own
    // blocks.
    const bool has_heap_ = kHasHeap && !gpu::memory();
    TensorHeap heap_;
    mutable std::mutex mutex_;  // of everything below
    int64_t current_bytes_ = 0, peak_bytes_ = 0;
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
    StepMemory memory{peak_bytes(), resident_bytes()};
    if (const auto gpu = gpu::memory()) memory.allocator = {gpu->peak_reserved_bytes, gpu->num_retries};
    return memory;
}

int64_t resident_bytes() {
    std::ifstream status("/proc/self/status");
    int64_t kibibytes = 0;
    for (std::string key; status >> key;) {
        if (key == "VmRSS:" && status >> kibibytes) return kibibytes * 1024;
        status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
    }
    return 0;
}

}  // namespace argosy::observe
