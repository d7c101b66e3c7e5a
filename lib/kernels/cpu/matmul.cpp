#include "kernels/cpu/matmul.h"

#include "kernels/cpu/tile.h"
#include "kernels/scratch.h"

namespace argosy::kernels::ARGOSY_VARIANT {
namespace {

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

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
};

/// The packed rows of A times the packed columns of B; `sums` is where the first of these rows begins.
template <class Tile>
void multiply_panels(const Block<Tile>& block, int64_t num_rows, int64_t k, float* sums, bool accumulate) {
    for (int64_t column = 0; column < block.num_columns; column += Tile::kColumns) {
        const auto* b = block.b + packed_b_size<Tile>(column, k);
        for (int64_t row = 0; row < num_rows; row += Tile::kRows) {
            Tile::multiply(k, block.a + packed_a_size<Tile>(row, k), b,
                           sums + row * block.kSumsStride + column, block.kSumsStride, accumulate);
        }
    }
}

/// One step along k of one product.
template <class Tile, class T>
void add_step(const Block<Tile>& block, const Product<T>& product, int64_t begin, bool accumulate) {
    const int64_t k = smaller(block.kDepth, product.k - begin);
    pack_b<Tile>(starting_at(product.b, block.column, begin), block.num_columns, k, block.b);
    for (int64_t row = 0; row < block.num_rows; row += block.kRows) {
        const int64_t num_rows = smaller(block.kRows, block.num_rows - row);
        pack_a<Tile>(starting_at(product.a, block.row + row, begin), num_rows, k, block.a);
        multiply_panels(block, num_rows, k, block.sums + row * block.kSumsStride, accumulate);
    }
}

template <class Tile, class Sum>
void write_sums(const Block<Tile>& block, Sum* c, int64_t c_stride, bool accumulate) {
    for (int64_t row = 0; row < block.num_rows; ++row) {
        const float* sums = block.sums + row * block.kSumsStride;
        Sum* to = c + (block.row + row) * c_stride + block.column;
        for_each_vector(block.num_columns, [&](int64_t i, auto load, auto store) {
            store(to + i, accumulate ? load(to + i) + load(sums + i) : load(sums + i));
        });
    }
}

template <class Tile>
void clear_sums(const Block<Tile>& block) {
    __builtin_memset(block.sums, 0, static_cast<size_t>(4 * block.num_rows * block.kSumsStride));
}

}  // namespace

template <class T, class Sum>
void matmul(const Matmul<T, Sum>& args) {
    using Tile = TileOf<T>;
    Block<Tile> block;
    const typename Tile::Session session;
    for (block.column = args.column_begin; block.column < args.column_end;
         block.column += block.kMostColumns) {
        block.num_columns = smaller(block.kMostColumns, args.column_end - block.column);
        for (block.row = args.row_begin; block.row < args.row_end; block.row += block.kMostRows) {
            block.num_rows = smaller(block.kMostRows, args.row_end - block.row);
            bool accumulate = false;
            for (int64_t i = 0; i < args.num_products; ++i) {
                for (int64_t k = 0; k < args.products[i].k; k += block.kDepth, accumulate = true) {
                    add_step(block, args.products[i], k, accumulate);
                }
            }
            if (!accumulate) clear_sums(block);
            write_sums(block, args.c, args.c_stride, args.accumulate);
        }
    }
}

template void matmul(const Matmul<float, float>&);
template void matmul(const Matmul<BFloat16, BFloat16>&);
template void matmul(const Matmul<BFloat16, float>&);
template void matmul(const Matmul<Half, Half>&);
template void matmul(const Matmul<Half, float>&);

}  // namespace argosy::kernels::ARGOSY_VARIANT
