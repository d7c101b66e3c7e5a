#include "plan/dry_memory.h"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <limits>
#include <mutex>

namespace argosy::plan {

/// A block without data: its context alone, which is its size.
class MetaAllocator final : public c10::Allocator {
  public:
    static DryMemory& memory() {
        // Never deleted, because tensors may outlive everything else.
        thread_local DryMemory* const of_thread = new DryMemory;
        return *of_thread;
    }

    c10::DataPtr allocate(size_t num_bytes) override {
        DryMemory& own = memory();
        own.current_bytes_ += static_cast<int64_t>(num_bytes);
        own.peak_bytes_ = std::max(own.peak_bytes_, own.current_bytes_);
        return {nullptr, new Block{own, num_bytes}, &free, c10::DeviceType::Meta};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &free; }
    void copy_data(void*, const void*, size_t) const override {}

  private:
    struct Block {
        DryMemory& memory;
        size_t num_bytes;
    };

    static void free(void* context) {
        auto* const block = static_cast<Block*>(context);
        if (block == nullptr) return;
        block->memory.current_bytes_ -= static_cast<int64_t>(block->num_bytes);
        delete block;
    }
};

DryMemory& DryMemory::install() {
    static std::once_flag once;
    std::call_once(once, [] {
        c10::SetAllocator(c10::DeviceType::Meta, new MetaAllocator, std::numeric_limits<uint8_t>::max());
    });
    return MetaAllocator::memory();
}

}  // namespace argosy::plan
