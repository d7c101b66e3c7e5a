#include "interop/slabs.h"

#include <algorithm>

namespace argosy::interop {

using layout::Slab;

std::vector<Slab> consecutive_blocks(const std::vector<int64_t>& shape, int64_t most_elements) {
    const Slab whole{std::vector<int64_t>(shape.size(), 0), shape};
    if (whole.num_elements() == 0) return {};
    // `cut` is the dim that is cut: the dims after it fit into a block together, those before it have one row
    // each.
    size_t cut = shape.size();
    int64_t inner = 1;
    while (cut > 0 && inner * shape[cut - 1] <= most_elements) inner *= shape[--cut];
    if (cut == 0) return {whole};
    --cut;

    const int64_t rows = most_elements / inner;
    std::vector<Slab> blocks;
    Slab block = whole;
    std::fill_n(block.size.begin(), cut, 1);
    while (true) {
        for (int64_t begin = 0; begin < shape[cut]; begin += rows) {
            block.offset[cut] = begin;
            block.size[cut] = std::min(rows, shape[cut] - begin);
            blocks.push_back(block);
        }
        size_t dim = cut;
        while (dim > 0 && ++block.offset[dim - 1] == shape[dim - 1]) block.offset[--dim] = 0;
        if (dim == 0) return blocks;
    }
}

}  // namespace argosy::interop
