#include "layout/slab.h"

#include <gtest/gtest.h>

#include <random>

namespace argosy::layout {
namespace {

/// The row-major numbers of a slab's elements, by counting through it.
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

TEST(ConsecutiveSlabs, ComeInOrderAndLeaveNothingOut) {
    std::mt19937 random(5);
    for (int round = 0; round < 300; ++round) {
        std::vector<int64_t> shape(random() % 5);
        int64_t size = 1;
        for (int64_t& extent : shape) size *= extent = 1 + static_cast<int64_t>(random() % 6);
        const auto most = 1 + static_cast<int64_t>(random() % 40);
        int64_t next = 0;
        for (const Slab& slab : consecutive_slabs(shape, most)) {
            EXPECT_LE(slab.num_elements(), most);
            for (const int64_t number : numbers(shape, slab)) EXPECT_EQ(number, next++);
        }
        EXPECT_EQ(next, size);
    }
}

TEST(ConsecutiveSlabs, AreNoneOfATensorWithoutElementsAndNeverTiny) {
    EXPECT_TRUE(consecutive_slabs({3, 0, 5}, 4).empty());
    EXPECT_EQ(consecutive_slabs({}, 4).size(), 1u);
    EXPECT_EQ(consecutive_slabs({1000, 1000}, 100'000).size(), 10u);
    EXPECT_EQ(consecutive_slabs({1'000'000'000'000}, int64_t{1} << 34).size(), 59u);
    EXPECT_EQ(consecutive_slabs({2, 3'000'000}, 1'000'000).size(), 6u);
}

using Runs = std::vector<Run>;  // within a test `Run` is GoogleTest's

Runs runs(const Slab& a, const Slab& b) {
    Runs found;
    if (const auto common = intersection(a, b)) {
        for_each_run(*common, a, b, [&](const Run& run) { found.push_back(run); });
    }
    return found;
}

TEST(SlabRuns, AreAsLongAsTheyCanBe) {
    const Slab rows{{2, 0}, {4, 10}};
    EXPECT_EQ(runs(rows, {{0, 0}, {8, 10}}), (Runs{{0, 20, 40}}));
    EXPECT_EQ(runs(rows, {{4, 0}, {8, 10}}), (Runs{{20, 0, 20}}));
    EXPECT_EQ(runs(rows, {{5, 3}, {8, 2}}), (Runs{{33, 0, 2}}));
    EXPECT_EQ(runs(rows, {{4, 3}, {8, 2}}), (Runs{{23, 0, 2}, {33, 2, 2}}));
    EXPECT_EQ(runs(rows, {{6, 0}, {2, 10}}), Runs());
    EXPECT_EQ(runs({{}, {}}, {{}, {}}), (Runs{{0, 0, 1}}));
    const Slab cube{{0, 0, 0}, {2, 3, 4}};
    EXPECT_EQ(runs(cube, {{0, 1, 0}, {2, 2, 4}}), (Runs{{4, 0, 8}, {16, 8, 8}}));
}

}  // namespace
}  // namespace argosy::layout
