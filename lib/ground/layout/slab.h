// A slab is a box of a tensor: the part that a rank holds, a shard stores or a reader requests. This file is
// arithmetic on slabs and moves no elements. Elements are numbered row-major, within the tensor or within the
// slab.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace argosy::layout {

int64_t num_elements(const std::vector<int64_t>& shape);

/// The index range [offset, offset + size) in each dim.
struct Slab {
    std::vector<int64_t> offset, size;
    int64_t num_elements() const;
    bool operator==(const Slab&) const = default;
};

/// The slab that is the whole tensor.
Slab whole(const std::vector<int64_t>& shape);

/// The box that both slabs contain; none if they share no element.
std::optional<Slab> intersection(const Slab& a, const Slab& b);

/// `length` elements that are consecutive in both slabs, from element `in_a` of slab a and `in_b` of slab b
/// on.
struct Run {
    int64_t in_a = 0, in_b = 0, length = 0;
    bool operator==(const Run&) const = default;
};

/// Visits the longest possible runs of `common`, ascending in both slabs. REQUIRES: `common` is the
/// intersection of `a` and `b`.
void for_each_run(const Slab& common, const Slab& a, const Slab& b,
                  const std::function<void(const Run&)>& visit);

/// Slabs of at most `max_elements` consecutive elements of the tensor, in order. REQUIRES: max_elements > 0.
std::vector<Slab> consecutive_slabs(const std::vector<int64_t>& shape, int64_t max_elements);

/// Maps element i of a slab to an element of the tensor. The slab consists of rows of `length` consecutive
/// elements; the first row begins at element `first` of the tensor, each next row `stride` elements later.
struct SlabRows {
    int64_t first = 0, length = 1, stride = 1;
    int64_t element(int64_t i) const { return first + i / length * stride + i % length; }
};
/// REQUIRES: only the first two dims of the tensor are cut.
SlabRows rows_of(const std::vector<int64_t>& shape, const Slab& slab);

/// Chunk `index` of [0, n), which is cut into `parts` chunks of ceil(n / parts); the last chunks may be
/// shorter or empty.
struct Range {
    int64_t begin = 0, size = 0;
};
Range chunk(int64_t n, int parts, int index);

/// How context parallelism cuts a sequence into chunks of equal length. HeadTail: 2n chunks, of which rank r
/// of n has r and 2n-1-r, so that all ranks have equally many visible keys. None: n chunks, one for each
/// rank.
enum class ContextBalance { HeadTail, None };
constexpr int chunks_per_rank(ContextBalance balance) { return balance == ContextBalance::HeadTail ? 2 : 1; }

/// The tokens of a sequence that a rank of the context axis has, ascending; all tokens if the axis has one
/// rank. REQUIRES: degree * chunks_per_rank divides seq_len, unless degree is 1.
std::vector<Range> context_parts(ContextBalance balance, int64_t seq_len, int degree, int rank);

}  // namespace argosy::layout
