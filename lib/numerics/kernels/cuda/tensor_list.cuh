// One launch for many tensors. The kernel's arguments hold, by value, the work on each tensor and the blocks
// that do it, so no copy to the device precedes the launch. Tensors that do not fit into the arguments go
// into further launches.
#pragma once

#include "kernels/cuda/machine.cuh"

namespace argosy::kernels::cuda {

/// Items in order; each has num_blocks() consecutive blocks of the launch. Item: plain data with an
/// `int64_t num_blocks() const`.
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
    static_assert(sizeof(list) <= 4096);  // the arguments' maximum size on every GPU
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
