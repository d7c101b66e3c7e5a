// Many tensors in one launch. The kernel's arguments hold by value what is done to each tensor and which
// blocks do it, so that nothing has to be copied to the device before. Tensors that do not fit go into more
// launches.
#pragma once

#include "kernels/cuda/machine.cuh"

namespace argosy::kernels::cuda {

/// Blocks are in the order of their tensors. Item: plain data with an `int64_t num_blocks() const`.
template <class Item>
struct TensorList {
    static constexpr int kMaxItems = 4080 / static_cast<int>(sizeof(Item) + sizeof(unsigned));

    Item items[kMaxItems];
    unsigned end_block[kMaxItems];  // of each item
    int num_items = 0;

    struct Place {
        int item;
        int64_t block;  // within the item
    };

    /// The item of the calling block, and the block's number within the item.
    __device__ Place place() const {
        int first = 0, last = num_items - 1;
        while (first < last) {
            const int middle = (first + last) / 2;
            if (blockIdx.x < end_block[middle]) {
                last = middle;
            } else {
                first = middle + 1;
            }
        }
        return {first, blockIdx.x - (first == 0 ? 0 : end_block[first - 1])};
    }

    bool full() const { return num_items == kMaxItems; }
    unsigned num_blocks() const { return num_items == 0 ? 0 : end_block[num_items - 1]; }
    void add(const Item& item) {
        items[num_items] = item;
        end_block[num_items] = num_blocks() + static_cast<unsigned>(item.num_blocks());
        ++num_items;
    }
};

/// Calls use(list) with lists of the items that `item_of(i)`, i < count, returns; skips items without blocks.
template <class Item, class ItemOf, class Use>
void for_each_list(int64_t count, ItemOf item_of, Use use) {
    TensorList<Item> list;
    static_assert(sizeof(list) <= 4096);  // bytes of arguments that every launch may have
    for (int64_t i = 0; i < count; ++i) {
        const Item item = item_of(i);
        if (item.num_blocks() == 0) continue;
        list.add(item);
        if (!list.full()) continue;
        use(list);
        list.num_items = 0;
    }
    if (list.num_items > 0) use(list);
}

}  // namespace argosy::kernels::cuda
