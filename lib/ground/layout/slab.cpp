#include "layout/slab.h"

#include <algorithm>

#include "base/error.h"
#include "base/units.h"

namespace argosy::layout {
namespace {

/// Index within `slab` of the element at position `at` of the tensor.
int64_t element(const Slab& slab, const std::vector<int64_t>& at) {
    int64_t index = 0;
    for (size_t dim = 0; dim < at.size(); ++dim) index = index * slab.size[dim] + at[dim] - slab.offset[dim];
    return index;
}

}  // namespace

int64_t num_elements(const std::vector<int64_t>& shape) {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    return count;
}

int64_t Slab::num_elements() const { return layout::num_elements(size); }

Slab whole(const std::vector<int64_t>& shape) {
    return {.offset = std::vector<int64_t>(shape.size(), 0), .size = shape};
}

std::optional<Slab> intersection(const Slab& a, const Slab& b) {
    Slab common = a;
    for (size_t dim = 0; dim < a.size.size(); ++dim) {
        const int64_t begin = std::max(a.offset[dim], b.offset[dim]);
        const int64_t end = std::min(a.offset[dim] + a.size[dim], b.offset[dim] + b.size[dim]);
        if (begin >= end) return std::nullopt;
        common.offset[dim] = begin;
        common.size[dim] = end - begin;
    }
    return common;
}

void for_each_run(const Slab& common, const Slab& a, const Slab& b,
                  const std::function<void(const Run&)>& visit) {
    size_t inner = common.size.size();  // a run covers the dims from `inner` on
    int64_t length = 1;
    bool whole = true;  // the run's dims are whole in both slabs, so the run can cover the next dim
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

std::vector<Slab> consecutive_slabs(const std::vector<int64_t>& shape, int64_t max_elements) {
    const Slab all = whole(shape);
    if (all.num_elements() == 0) return {};
    // `cut` is the dim to cut. In each slab, the dims after it are whole, and the dims before it have size 1.
    size_t cut = shape.size();
    int64_t inner = 1;
    while (cut > 0 && inner * shape[cut - 1] <= max_elements) inner *= shape[--cut];
    if (cut == 0) return {all};
    --cut;

    const int64_t rows = max_elements / inner;
    std::vector<Slab> slabs;
    Slab slab = all;
    std::fill_n(slab.size.begin(), cut, 1);
    while (true) {
        for (int64_t begin = 0; begin < shape[cut]; begin += rows) {
            slab.offset[cut] = begin;
            slab.size[cut] = std::min(rows, shape[cut] - begin);
            slabs.push_back(slab);
        }
        size_t dim = cut;
        while (dim > 0 && ++slab.offset[dim - 1] == shape[dim - 1]) slab.offset[--dim] = 0;
        if (dim == 0) return slabs;
    }
}

SlabRows rows_of(const std::vector<int64_t>& shape, const Slab& slab) {
    int64_t inner = 1;  // elements between neighbours in dim 1
    for (size_t dim = 2; dim < shape.size(); ++dim) {
        ARGOSY_CHECK(slab.size[dim] == shape[dim], "dim {} is cut", dim);
        inner *= shape[dim];
    }
    if (shape.size() == 1) return {slab.offset[0], std::max<int64_t>(shape[0], 1), 0};
    const int64_t stride = shape[1] * inner;
    return {slab.offset[0] * stride + slab.offset[1] * inner, std::max<int64_t>(slab.size[1] * inner, 1),
            stride};
}

Range chunk(int64_t n, int parts, int index) {
    const int64_t size = divide_up(n, parts);
    const int64_t begin = std::min(n, size * index);
    return {begin, std::min(n, begin + size) - begin};
}

std::vector<Range> context_parts(ContextBalance balance, int64_t seq_len, int degree, int rank) {
    if (degree == 1) return {{0, seq_len}};
    const int64_t size = seq_len / (degree * chunks_per_rank(balance));
    ARGOSY_CHECK(size * degree * chunks_per_rank(balance) == seq_len, "{} tokens cut for {} ranks", seq_len,
                 degree);
    if (balance == ContextBalance::None) return {{rank * size, size}};
    return {{rank * size, size}, {(2 * degree - 1 - rank) * size, size}};
}

}  // namespace argosy::layout
