#include "base/random.h"

#include <gtest/gtest.h>

#include <vector>

namespace argosy {
namespace {

// Known answers of Random123's kat_vectors for philox4x32-10.
TEST(Philox, MatchesThePublishedVectors) {
    EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
              (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
              (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(NameKey, MatchesThePublishedVectors) {
    EXPECT_EQ(name_key(""), 0xcbf29ce484222325U);
    EXPECT_EQ(name_key("foobar"), 0x85944171f73967e8U);
}

TEST(Permutation, IsABijectionOfEverySize) {
    for (const int64_t size : {1, 2, 3, 7, 64, 65, 1000}) {
        const Permutation order(size, 42, 3);
        std::vector<bool> seen(size);
        for (int64_t i = 0; i < size; ++i) {
            const int64_t value = order.at(i);
            ASSERT_GE(value, 0);
            ASSERT_LT(value, size);
            EXPECT_FALSE(seen[value]) << value << " twice in " << size;
            seen[value] = true;
        }
    }
}

TEST(Permutation, DependsOnKeyAndStream) {
    const int64_t size = 1000;
    const Permutation order(size, 42, 3), other_key(size, 43, 3), other_stream(size, 42, 4);
    int same_key = 0, same_stream = 0, fixed = 0;
    for (int64_t i = 0; i < size; ++i) {
        same_key += order.at(i) == other_key.at(i);
        same_stream += order.at(i) == other_stream.at(i);
        fixed += order.at(i) == i;
    }
    EXPECT_LT(same_key, 10);
    EXPECT_LT(same_stream, 10);
    EXPECT_LT(fixed, 10);
}

}  // namespace
}  // namespace argosy
