// The division of rows among threads, for kernels that keep whole rows in registers. A group of kLanes
// threads (at most a warp, or a whole block) processes kRows rows at a time; each thread holds kPacks packs
// of each row. A group takes several short rows at a time, so that short rows have as many loads in flight as
// long rows.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/rms_norm.h"

namespace argosy::kernels::cuda {

/// Returns the number of elements in the gaps before `row`. A 32-bit division suffices, because no GPU's
/// memory holds 2^32 rows.
__device__ inline int64_t elements_in_gaps(const RowGroups& groups, int64_t row) {
    if (groups.gap == 0) return 0;
    return static_cast<uint32_t>(groups.first_row + row) / static_cast<uint32_t>(groups.rows_per_group) *
           groups.gap;
}

/// The factors by which a norm multiplies.
template <int kCount>
__device__ Floats<kCount> with_offset(Floats<kCount> weight, float offset) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) weight[k] += offset;
    return weight;
}

/// The offset of element i, counted row by row, in rows that are `stride` elements apart. REQUIRES: i < 2^32,
/// because the division has 32 bits.
__device__ inline int64_t place_of(int64_t i, int64_t row_size, int64_t stride) {
    const auto row = static_cast<uint32_t>(i) / static_cast<uint32_t>(row_size);
    return i + row * (stride - row_size);
}
/// The maximum number of rows whose elements place_of can count.
inline int64_t max_rows_per_launch(int64_t row_size) { return (int64_t{1} << 32) / row_size; }

/// How a block is divided among rows. kBlocks: blocks per multiprocessor in kernels whose blocks process
/// several rows.
template <int kLanes_, int kPacks_, int kRows_, int kThreads_, int kBlocks_>
struct RowShape {
    static constexpr int kLanes = kLanes_, kPacks = kPacks_, kRows = kRows_;
    static constexpr int kThreads = kThreads_, kBlocks = kBlocks_;
    static constexpr int kGroups = kThreads / kLanes, kRowsPerBlock = kGroups * kRows;
    static constexpr int kMaxPacks = kLanes * kPacks;  // maximum for a row
    static_assert(kLanes <= kWarp ? kThreads % kWarp == 0 : kThreads == kLanes && kRows == 1);
};

inline constexpr int kMaxBlocks = 4;  // maximum of kBlocks over all shapes

/// Calls visit(shape) with the shape for rows of `packs_per_row` packs. Returns false without a call if the
/// rows are too long.
template <class Visit>
bool with_row_shape(int64_t packs_per_row, Visit visit) {
    if (packs_per_row <= 8) return visit(RowShape<8, 1, 2, 256, 2>()), true;
    if (packs_per_row <= 16) return visit(RowShape<16, 1, 2, 256, 2>()), true;
    if (packs_per_row <= 32) return visit(RowShape<32, 1, 2, 256, 2>()), true;
    if (packs_per_row <= 64) return visit(RowShape<32, 2, 1, 256, 2>()), true;
    if (packs_per_row <= 128) return visit(RowShape<32, 4, 1, 128, 3>()), true;
    if (packs_per_row <= 256) return visit(RowShape<128, 2, 1, 128, 4>()), true;
    if (packs_per_row <= 512) return visit(RowShape<256, 2, 1, 256, 2>()), true;
    if (packs_per_row <= 1024) return visit(RowShape<512, 2, 1, 512, 1>()), true;
    if (packs_per_row <= 2048) return visit(RowShape<512, 4, 1, 512, 1>()), true;
    return false;
}

/// The rows and columns of this thread's packs. Rows in registers are short, so columns fit into 32 bits; row
/// numbers and offsets of rows need 64.
template <class T, class Shape>
class RowPlace {
  public:
    static constexpr int kCount = kPack<T>;

    __device__ RowPlace(int64_t first_row_of_block, int64_t num_rows, int64_t row_size)
        : first_row_(first_row_of_block + threadIdx.x / Shape::kLanes * Shape::kRows),
          row_size_(static_cast<int>(row_size)),
          column_(threadIdx.x % Shape::kLanes * kCount),
          rows_left_(num_rows - first_row_ < Shape::kRows ? static_cast<int>(num_rows - first_row_)
                                                          : Shape::kRows) {}

    __device__ int64_t row(int row) const { return first_row_ + row; }
    __device__ int column(int pack) const { return column_ + pack * (Shape::kLanes * kCount); }
    __device__ int64_t at(int row, int pack) const {
        return first_row_ * row_size_ + (row * row_size_ + column(pack));
    }
    __device__ bool has_row(int row) const { return row < rows_left_; }
    __device__ bool has(int row, int pack) const { return has_row(row) && column(pack) < row_size_; }

    /// Loads a pack, or returns zeros if the thread has no such pack.
    __device__ Elements<T, kCount> load(const T* from, int row, int pack) const {
        return has(row, pack) ? load_elements<kCount>(from + at(row, pack)) : Elements<T, kCount>();
    }
    /// Loads a pack of a vector that all rows share, or returns zeros if the thread has no such pack.
    __device__ Elements<T, kCount> load_column(const T* from, int pack) const {
        return column(pack) < row_size_ ? load_elements<kCount>(from + column(pack)) : Elements<T, kCount>();
    }

  private:
    int64_t first_row_;
    int row_size_, column_, rows_left_;
};

/// Sums over the threads of a row; each of these threads gets the sum. REQUIRES: all threads of the block
/// call it.
template <class Shape>
class RowSum {
  public:
    using Memory = typename BlockSum<Shape::kThreads>::Memory;  // __shared__
    __device__ explicit RowSum(Memory& memory) : block_sum_(memory) {}

    __device__ float operator()(float x) {
        if constexpr (Shape::kLanes <= kWarp) return warp_sum<Shape::kLanes>(x);
        return block_sum_(x);
    }

  private:
    BlockSum<Shape::kThreads> block_sum_;
};

}  // namespace argosy::kernels::cuda
