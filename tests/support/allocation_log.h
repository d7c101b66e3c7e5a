// What LibTorch allocates in the processor's memory and for tensors without data (meta), for tests that
// compare the two. Not to be used together with observe::MemoryMeter, which also replaces LibTorch's
// allocator.
#pragma once

#include <c10/core/Allocator.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace argosy::testing {

/// LibTorch's allocator of one device. Lists the allocations since start().
class AllocationLog final : public c10::Allocator {
  public:
    /// Replaces LibTorch's allocator, at the first call for a device and for the rest of the process.
    template <c10::DeviceType kDevice>
    static AllocationLog& of() {
        // Never deleted, because tensors may outlive everything else.
        static AllocationLog* const log = [] {
            auto* const made = new AllocationLog(kDevice, [](void* block) { of<kDevice>().free(block); });
            c10::SetAllocator(kDevice, made, /*priority=*/255);
            return made;
        }();
        return *log;
    }

    void start() {
        sizes_.clear();
        start_bytes_ = peak_bytes_ = current_bytes_;
    }
    /// The bytes of each allocation since start(), in order. Leaves out scalars, which LibTorch's kernels for
    /// processors make from numbers in arguments.
    const std::vector<int64_t>& sizes() const { return sizes_; }
    /// The maximum of the bytes in use since start(), and their number now, less the bytes in use at start().
    int64_t peak_bytes() const { return peak_bytes_ - start_bytes_; }
    int64_t current_bytes() const { return current_bytes_ - start_bytes_; }

    c10::DataPtr allocate(size_t num_bytes) override {
        const std::lock_guard lock(mutex_);
        const bool has_data = device_ == c10::DeviceType::CPU;
        void* const block =
            std::aligned_alloc(kAlignment, has_data ? (num_bytes / kAlignment + 1) * kAlignment : 1);
        const auto size = num_bytes > kScalarBytes ? static_cast<int64_t>(num_bytes) : 0;
        block_bytes_[block] = size;
        if (size > 0) sizes_.push_back(size);
        current_bytes_ += size;
        peak_bytes_ = std::max(peak_bytes_, current_bytes_);
        return {has_data ? block : nullptr, block, deleter_, device_};
    }
    c10::DeleterFnPtr raw_deleter() const override { return deleter_; }
    void copy_data(void* out, const void* in, size_t num_bytes) const override {
        default_copy_data(out, in, num_bytes);
    }

  private:
    static constexpr size_t kAlignment = 64, kScalarBytes = 8;

    AllocationLog(c10::DeviceType device, c10::DeleterFnPtr deleter) : device_(device), deleter_(deleter) {}

    void free(void* block) {
        if (block == nullptr) return;
        const std::lock_guard lock(mutex_);
        const auto known = block_bytes_.find(block);
        current_bytes_ -= known->second;
        block_bytes_.erase(known);
        std::free(block);
    }

    c10::DeviceType device_;
    c10::DeleterFnPtr deleter_;
    std::mutex mutex_;
    std::unordered_map<void*, int64_t> block_bytes_;
    std::vector<int64_t> sizes_;
    int64_t start_bytes_ = 0, current_bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace argosy::testing
