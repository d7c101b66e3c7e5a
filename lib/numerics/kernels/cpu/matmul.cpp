// Matrix products, block by block of C. Operands are packed into panels, which tiles multiply (cpu/tile.h).
#include "kernels/cpu/kernels.h"

#include <type_traits>

#include "kernels/cpu/tile.h"
#include "kernels/scratch.h"

namespace argosy::kernels::ARGOSY_VARIANT {
namespace {

/// A block of C, and the memory for its packed operands and its sums. k is divided into steps of kDepth, and
/// kMaxSteps steps are a slab. The panels of B are packed once for each slab, and the panels of A for kRows
/// rows of a step at a time. A panel of B then stays in the L1 cache, the rows of A and their sums in L2, and
/// the slab of B in L3. If k is longer than a slab, a block has at most kMaxRows rows, and their sums are
/// kept until the next slab.
template <class Tile>
struct Block {
    using Element = typename Tile::Element;
    static constexpr int64_t kDepth = 256 * Tile::Words::kElements;
    static constexpr int64_t kMaxSteps = 4;
    static constexpr int64_t kRows = 192 / Tile::kRows * Tile::kRows;
    static constexpr int64_t kMaxRows = 4 * kRows;
    static constexpr int64_t kMaxColumns = 512;
    static constexpr int64_t kSumsStride = kMaxColumns + 16;  // puts rows into different sets of a cache
    static_assert(kMaxColumns % Tile::kColumns == 0 && kDepth % Tile::kDepth == 0);

    int64_t row, column, num_rows, num_columns;
    // Whether sums are kept from one slab to the next, because k is longer than a slab.
    bool keeps_sums;
    float* sums;
    Element *a, *b;

    Block() {
        constexpr int64_t kSumsBytes = 4 * kMaxRows * kSumsStride;
        constexpr int64_t kABytes = kRows * kDepth * sizeof(Element);
        constexpr int64_t kBBytes = kMaxSteps * kMaxColumns * kDepth * sizeof(Element);
        auto* memory = static_cast<char*>(scratch(kSumsBytes + kABytes + kBBytes));
        sums = reinterpret_cast<float*>(memory);
        a = reinterpret_cast<Element*>(memory + kSumsBytes);
        b = reinterpret_cast<Element*>(memory + kSumsBytes + kABytes);
    }

    float* sums_of(int64_t first_row) const { return keeps_sums ? sums + first_row * kSumsStride : sums; }
    Element* b_of(int64_t step) const { return b + step % kMaxSteps * kMaxColumns * kDepth; }
};

/// The number of A's num_rows rows that tiles may read in place. Rows that are read in place fill whole
/// tiles, are contiguous along k, and are not at a distance that maps them to the same few sets of the L1
/// cache.
template <class Tile, class T>
int64_t num_rows_in_place(const Operand<T>& a, int64_t num_rows, int64_t k) {
    constexpr int64_t kSetsBytes = 4096;
    if constexpr (!Tile::kReadsInPlace || !std::is_same_v<T, typename Tile::Element>) return 0;
    const bool same_sets = a.lane_stride * static_cast<int64_t>(sizeof(T)) % kSetsBytes == 0;
    if (a.k_stride != 1 || same_sets || k % Tile::kDepth != 0) return 0;
    return num_rows / Tile::kRows * Tile::kRows;
}

/// Multiplies num_rows rows of A with packed columns of B. Rows from `first_packed` on are packed in block.a;
/// earlier rows are read in place. `sums` points to the sums of the first row.
template <class Tile, class T>
void multiply_rows(const Block<Tile>& block, const Operand<T>& a, int64_t num_rows, int64_t first_packed,
                   int64_t k, const typename Tile::Element* b, float* sums, bool accumulate) {
    for (int64_t column = 0; column < block.num_columns; column += Tile::kColumns) {
        const auto* panel = b + packed_b_size<Tile>(column, k);
        for (int64_t row = 0; row < num_rows; row += Tile::kRows) {
            float* c = sums + row * block.kSumsStride + column;
            if constexpr (Tile::kReadsInPlace && std::is_same_v<T, typename Tile::Element>) {
                if (row < first_packed) {
                    Tile::multiply_in_place(k, a.data + row * a.lane_stride, a.lane_stride, panel, c,
                                            block.kSumsStride, accumulate);
                    continue;
                }
            }
            Tile::multiply_first(smaller(Tile::kRows, num_rows - row), k,
                                 block.a + packed_a_size<Tile>(row - first_packed, k), panel, c,
                                 block.kSumsStride, accumulate);
        }
    }
}

/// Adds one step along k to the sums of at most kRows rows. Packs the rows of A that tiles cannot read in
/// place.
template <class Tile, class T>
void add_step(const Block<Tile>& block, const Operand<T>& a, int64_t row, int64_t k, int64_t step) {
    const int64_t num_rows = smaller(block.kRows, block.num_rows - row);
    const int64_t first_packed = num_rows_in_place<Tile>(a, num_rows, k);
    pack_a<Tile>(starting_at(a, first_packed, 0), num_rows - first_packed, k, block.a);
    multiply_rows(block, a, num_rows, first_packed, k, block.b_of(step), block.sums_of(row), step > 0);
}

/// Writes the sums of at most kRows rows to C, times their factor, with the bias and then the addend's rows
/// added. Factors of 1 change no bit.
template <class Tile, class T, class Sum>
void write_rows(const Block<Tile>& block, int64_t first_row, const Matmul<T, Sum>& args) {
    const float* sums = block.sums_of(first_row);
    const Sum* bias = args.bias == nullptr ? nullptr : args.bias + block.column;
    const Vector factor = set(args.factor), addend_factor = set(args.addend_factor);
    const int64_t last_row = smaller(first_row + block.kRows, block.num_rows);
    for (int64_t row = first_row; row < last_row; ++row, sums += block.kSumsStride) {
        Sum* to = args.c + (block.row + row) * args.c_stride + block.column;
        const Sum* addend = args.addend == nullptr
                                ? nullptr
                                : args.addend + (block.row + row) * args.addend_stride + block.column;
        for_each_vector(block.num_columns, [&](int64_t i, auto load, auto store) {
            Vector sum = factor * load(sums + i);
            if (bias != nullptr) sum = load(bias + i) + sum;
            store(to + i, addend == nullptr ? sum : multiply_add(addend_factor, load(addend + i), sum));
        });
    }
}

/// Writes the product if k is 0.
template <class Tile, class T, class Sum>
void write_zeros(const Block<Tile>& block, const Matmul<T, Sum>& args) {
    __builtin_memset(block.sums, 0, sizeof(float) * block.kRows * block.kSumsStride);
    for (int64_t row = 0; row < block.num_rows; row += block.kRows) write_rows(block, row, args);
}

/// Calls visit(step, product, begin, k) for the steps [first, last). Steps are counted along k through all
/// products, and no step spans two products. Returns the number of all steps.
template <class Tile, class T, class Sum, class Visit>
int64_t for_each_step(const Matmul<T, Sum>& args, int64_t first, int64_t last, Visit visit) {
    int64_t step = 0;
    for (int64_t i = 0; i < args.num_products; ++i) {
        const Product<T>& product = args.products[i];
        for (int64_t begin = 0; begin < product.k; begin += Block<Tile>::kDepth, ++step) {
            if (step < first || step >= last) continue;
            visit(step, product, begin, smaller(Block<Tile>::kDepth, product.k - begin));
        }
    }
    return step;
}

template <class Tile, class T, class Sum>
void compute_block(const Block<Tile>& block, const Matmul<T, Sum>& args, int64_t num_steps) {
    for (int64_t first = 0; first < num_steps; first += block.kMaxSteps) {
        const int64_t last = smaller(first + block.kMaxSteps, num_steps);
        for_each_step<Tile>(args, first, last,
                            [&](int64_t step, const auto& product, int64_t begin, int64_t k) {
                                pack_b<Tile>(starting_at(product.b, block.column, begin), block.num_columns,
                                             k, block.b_of(step));
                            });
        for (int64_t row = 0; row < block.num_rows; row += block.kRows) {
            for_each_step<Tile>(
                args, first, last, [&](int64_t step, const auto& product, int64_t begin, int64_t k) {
                    add_step(block, starting_at(product.a, block.row + row, begin), row, k, step);
                });
            if (last == num_steps) write_rows(block, row, args);
        }
    }
    if (num_steps == 0) write_zeros(block, args);
}

}  // namespace

template <class T, class Sum>
void matmul(const Matmul<T, Sum>& args) {
    using Tile = TileOf<T>;
    Block<Tile> block;
    const int64_t num_steps = for_each_step<Tile>(args, 0, 0, [](auto...) {});
    block.keeps_sums = num_steps > block.kMaxSteps;
    const int64_t max_rows = block.keeps_sums ? block.kMaxRows : args.row_end - args.row_begin;
    const typename Tile::Session session;
    for (block.column = args.column_begin; block.column < args.column_end;
         block.column += block.kMaxColumns) {
        block.num_columns = smaller(block.kMaxColumns, args.column_end - block.column);
        for (block.row = args.row_begin; block.row < args.row_end; block.row += max_rows) {
            block.num_rows = smaller(max_rows, args.row_end - block.row);
            compute_block(block, args, num_steps);
        }
    }
}

template void matmul(const Matmul<float, float>&);
template void matmul(const Matmul<BFloat16, BFloat16>&);
template void matmul(const Matmul<BFloat16, float>&);

}  // namespace argosy::kernels::ARGOSY_VARIANT
