#include "ops/matmul.h"

#include <gtest/gtest.h>

#include <cmath>

namespace argosy::ops {
namespace {

constexpr int64_t kSides[] = {1, 15, 64, 100, 512, 2048, 4097};

TEST(ProductGrid, HasAsManyBlocksAsThreadsAtMost) {
    for (const int64_t rows : kSides) {
        for (const int64_t columns : kSides) {
            for (const int threads : {1, 2, 7, 64, 200}) {
                const ProductGrid grid = divide_product(rows, columns, 1024, threads);
                EXPECT_LE(grid.num_blocks(), threads);
                EXPECT_GE(grid.blocks_along_rows() * grid.block_rows, rows);
                EXPECT_GE(grid.blocks_along_columns() * grid.block_columns, columns);
                EXPECT_LT((grid.blocks_along_rows() - 1) * grid.block_rows, rows);
                EXPECT_LT((grid.blocks_along_columns() - 1) * grid.block_columns, columns);
            }
        }
    }
}

/// A share of the whole result in fewer rows and columns, so that a thread packs less of the operands.
TEST(ProductGrid, CutsBothDimsForManyThreads) {
    for (const int threads : {8, 32, 64, 128}) {
        const ProductGrid grid = divide_product(2048, 4096, 4096, threads);
        EXPECT_EQ(grid.num_blocks(), threads);
        const double square_side = std::sqrt(2048.0 * 4096 / threads);
        EXPECT_LE(grid.block_rows + grid.block_columns, threads == 8 ? 2600 : 3 * square_side) << threads;
    }
}

TEST(ProductGrid, GivesSmallProductsToFewThreads) {
    EXPECT_EQ(divide_product(64, 64, 64, 64).num_blocks(), 1);
    EXPECT_LE(divide_product(512, 512, 64, 64).num_blocks(), 8);
    EXPECT_EQ(divide_product(512, 512, 512, 64).num_blocks(), 64);
}

TEST(ProductGrid, OfAnEmptyProductHasNoBlocks) {
    EXPECT_EQ(divide_product(0, 64, 64, 8).num_blocks(), 0);
    EXPECT_EQ(divide_product(64, 0, 64, 8).num_blocks(), 0);
    EXPECT_EQ(divide_product(2, 2, 0, 8).num_blocks(), 1);
}

}  // namespace
}  // namespace argosy::ops
