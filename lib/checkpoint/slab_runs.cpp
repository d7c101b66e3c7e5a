#include "checkpoint/slab_runs.h"

#include <algorithm>
#include <vector>

namespace argosy::checkpoint {
namespace {

/// Index within `box` of the element at position `at` of the tensor.
int64_t element(const layout::Slab& box, const std::vector<int64_t>& at) {
    int64_t index = 0;
    for (size_t dim = 0; dim < at.size(); ++dim) index = index * box.size[dim] + at[dim] - box.offset[dim];
    return index;
}

}  // namespace

std::optional<layout::Slab> intersection(const layout::Slab& a, const layout::Slab& b) {
    layout::Slab common = a;
    for (size_t dim = 0; dim < a.size.size(); ++dim) {
        const int64_t begin = std::max(a.offset[dim], b.offset[dim]);
        const int64_t end = std::min(a.offset[dim] + a.size[dim], b.offset[dim] + b.size[dim]);
        if (begin >= end) return std::nullopt;
        common.offset[dim] = begin;
        common.size[dim] = end - begin;
    }
    return common;
}

void for_each_run(const layout::Slab& common, const layout::Slab& a, const layout::Slab& b,
                  const std::function<void(const Run&)>& visit) {
    size_t inner = common.size.size();  // dims from this one on are within a run
    int64_t length = 1;
    bool whole = true;  // whether the dims within a run are whole in both boxes, so that the next dim can
                        // join
    while (inner > 0 && whole) {
        --inner;
        length *= common.size[inner];
        whole = common.size[inner] == a.size[inner] && common.size[inner] == b.size[inner];
    }
    std::vector<int64_t> at = common.offset;
    while (true) {
        visit({.in_a = element(a, at), .in_b = element(b, at), .length = length});
        size_t dim = inner;
        while (dim > 0 && ++at[dim - 1] == common.offset[dim - 1] + common.size[dim - 1]) {
            at[dim - 1] = common.offset[dim - 1];
            --dim;
        }
        if (dim == 0) return;
    }
}

}  // namespace argosy::checkpoint
