#include "kernels/cpu/matmul.h"

#include <type_traits>

#include "kernels/cpu/tile.h"
#include "kernels/scratch.h"

namespace argosy::kernels::ARGOSY_VARIANT {
namespace {

/// How C is cut: sums of a block of C are kept while k goes by in steps of kDepth. Of each step, B's panels
/// are packed once for the block, and A's for kRows rows at a time. A panel of B then stays in the first
/// cache, the rows of A in the second, B and the sums in the third.
template <class Tile>
struct Block {
    static constexpr int64_t kDepth = 256 * Tile::Words::kElements;
    static constexpr int64_t kRows = 192 / Tile::kRows * Tile::kRows;
    static constexpr int64_t kMostRows = 4 * kRows;
    static constexpr int64_t kMostColumns = 512;
    static constexpr int64_t kSumsStride = kMostColumns + 16;  // rows in different sets of a cache
    static_assert(kMostColumns % Tile::kColumns == 0 && kDepth % Tile::kDepth == 0);

    int64_t row, column, num_rows, num_columns;
    bool keeps_sums;  // from one step to the next; else those of kRows rows are written as soon as they are
                      // there
    float* sums;
    typename Tile::Element *a, *b;

    Block() {
        constexpr int64_t kSumsBytes = 4 * kMostRows * kSumsStride;
        constexpr int64_t kABytes = kRows * kDepth * sizeof(*a), kBBytes = kMostColumns * kDepth * sizeof(*b);
        auto* memory = static_cast<char*>(scratch(kSumsBytes + kABytes + kBBytes));
        sums = reinterpret_cast<float*>(memory);
        a = reinterpret_cast<typename Tile::Element*>(memory + kSumsBytes);
        b = reinterpret_cast<typename Tile::Element*>(memory + kSumsBytes + kABytes);
    }

    float* sums_of(int64_t first_row) const { return keeps_sums ? sums + first_row * kSumsStride : sums; }
};

/// Rows of A, of num_rows, that a tile may read where they lie: k in memory order, and not so far apart that
/// they share a few sets of the first cache.
template <class Tile, class T>
int64_t num_rows_in_place(const Operand<T>& a, int64_t num_rows, int64_t k) {
    constexpr int64_t kSetsBytes = 4096;
    if constexpr (!Tile::kReadsInPlace || !std::is_same_v<T, typename Tile::Element>) return 0;
    const bool same_sets = a.lane_stride * static_cast<int64_t>(sizeof(T)) % kSetsBytes == 0;
    if (a.k_stride != 1 || same_sets || k % Tile::kDepth != 0) return 0;
    return num_rows / Tile::kRows * Tile::kRows;
}

/// num_rows of A, of which block.a holds those from `first_packed` on, times the packed columns of B; `sums`
/// is where the first of these rows begins.
template <class Tile, class T>
void multiply_rows(const Block<Tile>& block, const Operand<T>& a, int64_t num_rows, int64_t first_packed,
                   int64_t k, float* sums, bool accumulate) {
    for (int64_t column = 0; column < block.num_columns; column += Tile::kColumns) {
        const auto* b = block.b + packed_b_size<Tile>(column, k);
        for (int64_t row = 0; row < num_rows; row += Tile::kRows) {
            float* c = sums + row * block.kSumsStride + column;
            if constexpr (Tile::kReadsInPlace && std::is_same_v<T, typename Tile::Element>) {
                if (row < first_packed) {
                    Tile::multiply_in_place(k, a.data + row * a.lane_stride, a.lane_stride, b, c,
                                            block.kSumsStride, accumulate);
                    continue;
                }
            }
            Tile::multiply(k, block.a + packed_a_size<Tile>(row - first_packed, k), b, c, block.kSumsStride,
                           accumulate);
        }
    }
}

/// One step along k of one product. Calls finish(row, num_rows, sums) as soon as it has added to those sums.
template <class Tile, class T, class Finish>
void add_step(const Block<Tile>& block, const Product<T>& product, int64_t begin, bool accumulate,
              Finish finish) {
    const int64_t k = smaller(block.kDepth, product.k - begin);
    pack_b<Tile>(starting_at(product.b, block.column, begin), block.num_columns, k, block.b);
    for (int64_t row = 0; row < block.num_rows; row += block.kRows) {
        const Operand<T> a = starting_at(product.a, block.row + row, begin);
        const int64_t num_rows = smaller(block.kRows, block.num_rows - row);
        const int64_t first_packed = num_rows_in_place<Tile>(a, num_rows, k);
        pack_a<Tile>(starting_at(a, first_packed, 0), num_rows - first_packed, k, block.a);
        float* sums = block.sums_of(row);
        multiply_rows(block, a, num_rows, first_packed, k, sums, accumulate);
        finish(row, num_rows, sums);
    }
}

template <class Tile, class T, class Sum>
void write_rows(const Block<Tile>& block, int64_t first_row, int64_t num_rows, const float* sums,
                const Matmul<T, Sum>& args) {
    for (int64_t row = 0; row < num_rows; ++row, sums += block.kSumsStride) {
        Sum* to = args.c + (block.row + first_row + row) * args.c_stride + block.column;
        for_each_vector(block.num_columns, [&](int64_t i, auto load, auto store) {
            store(to + i, args.accumulate ? load(to + i) + load(sums + i) : load(sums + i));
        });
    }
}

/// Of a product without k.
template <class Tile, class T, class Sum>
void write_zeros(const Block<Tile>& block, const Matmul<T, Sum>& args) {
    __builtin_memset(block.sums, 0, sizeof(float) * block.kSumsStride);
    for (int64_t row = 0; row < block.num_rows; ++row) write_rows(block, row, 1, block.sums, args);
}

/// The steps along k in which the block's sums grow.
template <class Tile, class T, class Sum>
int64_t count_steps(const Matmul<T, Sum>& args) {
    int64_t count = 0;
    for (int64_t i = 0; i < args.num_products; ++i) {
        count += (args.products[i].k + Block<Tile>::kDepth - 1) / Block<Tile>::kDepth;
    }
    return count;
}

template <class Tile, class T, class Sum>
void compute_block(const Block<Tile>& block, const Matmul<T, Sum>& args, int64_t num_steps) {
    int64_t step = 0;
    for (int64_t i = 0; i < args.num_products; ++i) {
        for (int64_t k = 0; k < args.products[i].k; k += block.kDepth, ++step) {
            add_step(block, args.products[i], k, step > 0,
                     [&](int64_t row, int64_t num_rows, const float* sums) {
                         if (step + 1 == num_steps) write_rows(block, row, num_rows, sums, args);
                     });
        }
    }
    if (num_steps == 0) write_zeros(block, args);
}

}  // namespace

template <class T, class Sum>
void matmul(const Matmul<T, Sum>& args) {
    using Tile = TileOf<T>;
    Block<Tile> block;
    const int64_t num_steps = count_steps<Tile>(args);
    block.keeps_sums = num_steps > 1;
    const int64_t most_rows = block.keeps_sums ? block.kMostRows : args.row_end - args.row_begin;
    const typename Tile::Session session;
    for (block.column = args.column_begin; block.column < args.column_end;
         block.column += block.kMostColumns) {
        block.num_columns = smaller(block.kMostColumns, args.column_end - block.column);
        for (block.row = args.row_begin; block.row < args.row_end; block.row += most_rows) {
            block.num_rows = smaller(most_rows, args.row_end - block.row);
            compute_block(block, args, num_steps);
        }
    }
}

template void matmul(const Matmul<float, float>&);
template void matmul(const Matmul<BFloat16, BFloat16>&);
template void matmul(const Matmul<BFloat16, float>&);
template void matmul(const Matmul<Half, Half>&);
template void matmul(const Matmul<Half, float>&);

}  // namespace argosy::kernels::ARGOSY_VARIANT
