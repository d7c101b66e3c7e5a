#include "plan/dry_memory.h"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <limits>

namespace argosy::plan {

/// A block without data: its context alone, which is its size.
class MetaAllocator final : public c10::Allocator {
  public:
    explicit MetaAllocator(DryMemory& memory) : memory_(memory) {}

    c10::DataPtr allocate(size_t num_bytes) override {
        memory_.current_bytes_ += static_cast<int64_t>(num_bytes);
        memory_.peak_bytes_ = std::max(memory_.peak_bytes_, memory_.current_bytes_);
        return {nullptr, new Block{memory_, num_bytes}, &free, c10::DeviceType::Meta};
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

    DryMemory& memory_;
};

DryMemory& DryMemory::install() {
    // Never deleted, because tensors may outlive everything else.
    static DryMemory* const memory = [] {
        auto* const made = new DryMemory;
        c10::SetAllocator(c10::DeviceType::Meta, new MetaAllocator(*made),
                          std::numeric_limits<uint8_t>::max());
        return made;
    }();
    return *memory;
}

}  // namespace argosy::plan
