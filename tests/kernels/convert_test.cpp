// Loads and stores of every table against conversions written in this file in fp64.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/tables.h"

namespace argosy::kernels {
namespace {

/// A 16-bit binary format, by its definition.
struct Format {
    int fraction_bits, bias;

    int exponent_ones() const { return (1 << (15 - fraction_bits)) - 1; }
    int smallest_exponent() const { return 1 - bias; }

    double value(uint16_t bits) const {
        const int exponent = bits >> fraction_bits & exponent_ones(),
                  fraction = bits & ((1 << fraction_bits) - 1);
        const double sign = (bits & 0x8000) != 0 ? -1 : 1;
        if (exponent == exponent_ones()) return fraction != 0 ? NAN : sign * INFINITY;
        if (exponent == 0) return sign * std::ldexp(fraction, smallest_exponent() - fraction_bits);
        return sign * std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
    }

    /// Rounds to the nearest value, ties to even: x in units of its last place is rounded to an integer.
    double rounded(double x) const {
        if (!std::isfinite(x) || x == 0) return x;
        const double unit = std::ldexp(1, std::max(std::ilogb(x), smallest_exponent()) - fraction_bits);
        const double nearest = std::nearbyint(x / unit) * unit;
        const double beyond = std::ldexp(1, exponent_ones() - bias);
        return std::abs(nearest) >= beyond ? std::copysign(INFINITY, x) : nearest;
    }
};
constexpr Format kBFloat16{7, 127};

/// Equal in value and sign; any NaN equals any NaN.
bool same(double a, double b) {
    return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

std::vector<BFloat16> all_patterns() {
    std::vector<BFloat16> patterns(1 << 16);
    for (int i = 0; i < 1 << 16; ++i) patterns[i].bits = static_cast<uint16_t>(i);
    return patterns;
}

/// Random bits; and numbers around every value of the format and around the middle between it and the next,
/// where rounding changes direction.
std::vector<float> floats_to_round() {
    std::vector<float> floats;
    std::mt19937 random(5);
    for (int i = 0; i < 1 << 20; ++i) floats.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
    for (int i = 0; i < (1 << 16) - 1; ++i) {
        const double low = kBFloat16.value(static_cast<uint16_t>(i));
        const double high = kBFloat16.value(static_cast<uint16_t>(i + 1));
        for (const double x : {low, (low + high) / 2}) {
            const auto middle = static_cast<float>(x);
            floats.insert(floats.end(),
                          {middle, std::nextafter(middle, INFINITY), std::nextafter(middle, -INFINITY)});
        }
    }
    for (const double x : {3.38e38, 3.3961e38, 3.4028235e38, 1e-45, 1e-40}) {
        floats.insert(floats.end(), {static_cast<float>(x), static_cast<float>(-x)});
    }
    floats.insert(floats.end(),
                  {INFINITY, -INFINITY, NAN, -NAN, std::bit_cast<float>(0x7f800001U), 0.0F, -0.0F});
    return floats;
}

class ConvertTest : public TableTest {
  protected:
    template <class T>
    std::vector<float> widen(const std::vector<T>& from) {
        std::vector<float> to(from.size());
        GetParam()->of<T>().widen({static_cast<int64_t>(from.size()), from.data(), to.data()});
        return to;
    }
    template <class T>
    std::vector<T> narrow(const std::vector<float>& from) {
        std::vector<T> to(from.size());
        GetParam()->of<T>().narrow({static_cast<int64_t>(from.size()), from.data(), to.data()});
        return to;
    }

    /// Every number of elements, and none beyond them is written.
    template <class T>
    void check_counts() {
        for (int64_t count = 0; count < 50; ++count) {
            const std::vector<float> ones(50, 1.0F);
            std::vector<T> narrowed = narrow<T>(std::vector<float>(50, 7.0F));
            GetParam()->of<T>().narrow({count, ones.data(), narrowed.data()});
            std::vector<float> widened(50, 5.0F);
            GetParam()->of<T>().widen({count, narrowed.data(), widened.data()});
            const std::vector<float> seen = widen(narrowed);
            for (int64_t i = 0; i < 50; ++i) {
                EXPECT_EQ(seen[i], i < count ? 1 : 7) << i << " of " << count;
                EXPECT_EQ(widened[i], i < count ? 1 : 5) << i << " of " << count;
            }
        }
    }
};

TEST_P(ConvertTest, EveryPatternWidensExactlyAndComesBack) {
    const std::vector<BFloat16> patterns = all_patterns();
    const std::vector<float> floats = widen(patterns);
    const std::vector<BFloat16> back = narrow<BFloat16>(floats);
    int wrong = 0;
    for (int i = 0; i < 1 << 16; ++i) {
        const double expected = kBFloat16.value(patterns[i].bits);
        wrong += !same(floats[i], expected);
        wrong += !std::isnan(expected) && back[i].bits != patterns[i].bits;
    }
    EXPECT_EQ(wrong, 0);
}

TEST_P(ConvertTest, NarrowingRoundsToNearestTiesToEven) {
    const std::vector<float> floats = floats_to_round();
    const std::vector<BFloat16> found = narrow<BFloat16>(floats);
    int wrong = 0;
    for (size_t i = 0; i < floats.size(); ++i) {
        const double got = kBFloat16.value(found[i].bits), expected = kBFloat16.rounded(floats[i]);
        if (same(got, expected) || ++wrong > 5) continue;
        ADD_FAILURE() << std::hexfloat << floats[i] << " became " << got << ", not " << expected;
    }
    EXPECT_EQ(wrong, 0) << "of " << floats.size();
}

TEST_P(ConvertTest, AnyNumberOfElements) {
    check_counts<float>();
    check_counts<BFloat16>();
}

ARGOSY_FOR_EACH_TABLE(ConvertTest);

}  // namespace
}  // namespace argosy::kernels
