#include "ops/product_grid.h"

#include <algorithm>

namespace argosy::ops {
namespace {

// Packing an element takes as long as kPackingCost multiplications and additions, an estimate from the rates
// of shares with AVX512_BF16. A is packed once for each kPackedColumns columns of the result.
constexpr int64_t kPackingCost = 32, kPackedColumns = 512;
// Blocks begin at multiples of these numbers, so that inner blocks consist of whole tiles.
constexpr int64_t kRowUnit = 16, kColumnUnit = 64;

/// The time of a block, in multiplications and additions, divided by k.
int64_t cost(int64_t block_rows, int64_t block_columns) {
    const int64_t packed = block_rows * divide_up(block_columns, kPackedColumns) + block_columns;
    return block_rows * block_columns + kPackingCost * packed;
}

}  // namespace

ProductGrid divide_product(int64_t rows, int64_t columns, int64_t k, int num_threads) {
    constexpr double kMinFlops = 4e6;
    const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(columns * (k + 1));
    const auto max_blocks =
        std::clamp<int64_t>(static_cast<int64_t>(flops / kMinFlops), 1, std::max(1, num_threads));
    ProductGrid best{rows, columns, std::max<int64_t>(1, rows), std::max<int64_t>(1, columns)};
    for (int64_t parts = 1; parts <= max_blocks; ++parts) {
        const int64_t block_rows = std::min(rows, round_up(divide_up(rows, parts), kRowUnit));
        const int64_t block_columns =
            std::min(columns, round_up(divide_up(columns, max_blocks / parts), kColumnUnit));
        if (rows == 0 || columns == 0) break;
        if (cost(block_rows, block_columns) < cost(best.block_rows, best.block_columns))
            best = {rows, columns, block_rows, block_columns};
    }
    return best;
}

}  // namespace argosy::ops
