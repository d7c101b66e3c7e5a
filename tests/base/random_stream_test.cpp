#include "base/random.h"

#include <gtest/gtest.h>

#include <array>

namespace argosy {
namespace {

std::vector<int> draw(RandomStream random) {
    std::vector<int> drawn(50);
    for (int& value : drawn) value = random.below(1000);
    return drawn;
}

TEST(RandomStream, IsAFunctionOfSeedPurposeAndIndex) {
    const std::vector<int> drawn = draw(RandomStream(1, "train", 7));
    EXPECT_EQ(draw(RandomStream(1, "train", 7)), drawn);
    EXPECT_NE(draw(RandomStream(2, "train", 7)), drawn);
    EXPECT_NE(draw(RandomStream(1, "valid", 7)), drawn);
    EXPECT_NE(draw(RandomStream(1, "train", 8)), drawn);
    EXPECT_NE(draw(RandomStream(1, "train", 7 + (uint64_t{1} << 32))), drawn);
}

TEST(RandomStream, IsUniformOverItsRange) {
    RandomStream random(1, "train", 0);
    std::array<int, 7> counts{};
    for (int i = 0; i < 70'000; ++i) ++counts.at(random.between(3, 9) - 3);
    for (const int count : counts) EXPECT_NEAR(count, 10'000, 500);
}

TEST(RandomStream, PicksAnother) {
    RandomStream random(1, "train", 0);
    constexpr std::array kItems = {1, 2, 3};
    for (int i = 0; i < 100; ++i) EXPECT_NE(random.pick_other(kItems, 2), 2);
}

}  // namespace
}  // namespace argosy
