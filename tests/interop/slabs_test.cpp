#include "interop/slab_checks.h"

#include <gtest/gtest.h>

#include <random>

namespace argosy::interop {
namespace {

using layout::Slab;

/// The row-major numbers of a box's elements, by counting through it.
std::vector<int64_t> numbers(const std::vector<int64_t>& shape, const Slab& slab) {
    std::vector<int64_t> result = {0};
    for (size_t dim = 0; dim < shape.size(); ++dim) {
        std::vector<int64_t> next;
        for (const int64_t number : result) {
            for (int64_t i = 0; i < slab.size[dim]; ++i)
                next.push_back(number * shape[dim] + slab.offset[dim] + i);
        }
        result = std::move(next);
    }
    return result;
}

TEST(ConsecutiveBlocks, ComeInOrderAndLeaveNothingOut) {
    std::mt19937 random(5);
    for (int round = 0; round < 300; ++round) {
        std::vector<int64_t> shape(random() % 5);
        int64_t size = 1;
        for (int64_t& extent : shape) size *= extent = 1 + static_cast<int64_t>(random() % 6);
        const auto most = 1 + static_cast<int64_t>(random() % 40);
        int64_t next = 0;
        for (const Slab& block : consecutive_blocks(shape, most)) {
            EXPECT_LE(block.num_elements(), most);
            for (const int64_t number : numbers(shape, block)) EXPECT_EQ(number, next++);
        }
        EXPECT_EQ(next, size);
    }
}

TEST(ConsecutiveBlocks, AreNoneOfATensorWithoutElementsAndNeverTiny) {
    EXPECT_TRUE(consecutive_blocks({3, 0, 5}, 4).empty());
    EXPECT_EQ(consecutive_blocks({}, 4).size(), 1u);
    EXPECT_EQ(consecutive_blocks({1000, 1000}, 100'000).size(), 10u);
    EXPECT_EQ(consecutive_blocks({1'000'000'000'000}, int64_t{1} << 34).size(), 59u);
    EXPECT_EQ(consecutive_blocks({2, 3'000'000}, 1'000'000).size(), 6u);
}

}  // namespace
}  // namespace argosy::interop
