// How the threads of a processor divide a matrix product: the result is cut into a grid of equal blocks, one
// for each thread. A thread packs its rows of A and its columns of B, so a block that is nearly square packs
// least for its products.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace argosy::ops {

struct ProductGrid {
    int64_t rows, columns;              // of the result
    int64_t block_rows, block_columns;  // of a block; the last ones may be smaller

    int64_t blocks_along_rows() const { return divide_up(rows, block_rows); }
    int64_t blocks_along_columns() const { return divide_up(columns, block_columns); }
    int64_t num_blocks() const { return blocks_along_rows() * blocks_along_columns(); }
};

/// The grid with which the slowest of `num_threads` threads takes least time. `k` is the number of terms of a
/// sum. Small products get fewer blocks than there are threads: a block takes at least about 50 us.
ProductGrid divide_product(int64_t rows, int64_t columns, int64_t k, int num_threads);

}  // namespace argosy::ops
