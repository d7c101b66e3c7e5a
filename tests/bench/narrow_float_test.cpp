// Numbers of one and two bytes against LibTorch's own: every value, and rounding of many.
#include "base/element_type.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Float8_e4m3fn.h>
#include <c10/util/Float8_e5m2.h>
#include <c10/util/Half.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

namespace argosy {
namespace {

template <class Ours, class Theirs>
struct Pair {
    using Own = Ours;
    using Oracle = Theirs;
};

template <class Types>
class NarrowFloat : public ::testing::Test {};
using All = ::testing::Types<Pair<Float16, c10::Half>, Pair<BFloat16, c10::BFloat16>,
                             Pair<Float8E4M3, c10::Float8_e4m3fn>, Pair<Float8E5M2, c10::Float8_e5m2>>;
TYPED_TEST_SUITE(NarrowFloat, All);

TYPED_TEST(NarrowFloat, EveryValueIsTheOracles) {
    using Own = typename TypeParam::Own;
    using Oracle = typename TypeParam::Oracle;
    using Bits = typename Own::Bits;
    for (int bits = 0; bits < 1 << (8 * sizeof(Bits)); ++bits) {
        const float ours = Own::value(static_cast<Bits>(bits));
        const float theirs = static_cast<float>(Oracle(static_cast<Bits>(bits), Oracle::from_bits()));
        if (std::isnan(theirs)) {
            EXPECT_TRUE(std::isnan(ours)) << bits;
            continue;
        }
        EXPECT_EQ(std::bit_cast<uint32_t>(ours), std::bit_cast<uint32_t>(theirs)) << bits;
        EXPECT_EQ(Own::rounded(ours), bits);
    }
}

TYPED_TEST(NarrowFloat, RoundsAsTheOracle) {
    using Own = typename TypeParam::Own;
    using Oracle = typename TypeParam::Oracle;
    using Bits = typename Own::Bits;
    std::mt19937 random(1);
    const auto expect_same = [](float value) {
        const auto theirs = Oracle(value).x;
        if (std::isnan(static_cast<float>(Oracle(theirs, Oracle::from_bits())))) {
            EXPECT_TRUE(std::isnan(Own::value(Own::rounded(value)))) << value;
        } else {
            EXPECT_EQ(Own::rounded(value), theirs) << value;
        }
    };
    for (int i = 0; i < 200000; ++i) {
        const float any = std::bit_cast<float>(static_cast<uint32_t>(random()));
        if (!std::isnan(any)) expect_same(any);
        // Near numbers that there are, ties among them.
        const float number = Own::value(static_cast<Bits>(random()));
        const float next = Own::value(static_cast<Bits>(random()));
        if (std::isfinite(number) && std::isfinite(next)) expect_same((number + next) / 2);
    }
    for (int bits = 0; bits + 1 < 1 << (8 * sizeof(Bits) - 1); ++bits) {
        const float low = Own::value(static_cast<Bits>(bits)), high = Own::value(static_cast<Bits>(bits + 1));
        if (std::isfinite(low) && std::isfinite(high)) expect_same((low + high) / 2);
    }
}

}  // namespace
}  // namespace argosy
