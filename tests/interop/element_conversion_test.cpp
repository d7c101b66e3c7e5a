// Every conversion against its definition, written out here with exact operations on doubles.
#include "interop/element_conversion.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "h5/element_type.h"

namespace argosy::interop {
namespace {

struct Format {
    ElementType type;
    int fraction_bits, smallest_exponent, largest_exponent;
};
constexpr Format kDouble{ElementType::Float64, 52, -1022, 1023}, kFloat{ElementType::Float32, 23, -126, 127},
    kBFloat16{ElementType::BFloat16, 7, -126, 127}, kHalf{ElementType::Float16, 10, -14, 15};

/// The nearest value of the format, ties to even.
double rounded(double x, const Format& format) {
    if (!std::isfinite(x) || x == 0 || format.type == ElementType::Float64) return x;
    const int exponent = std::max(std::ilogb(x), format.smallest_exponent);
    const double nearest = std::ldexp(std::nearbyint(std::ldexp(x, format.fraction_bits - exponent)),
                                      exponent - format.fraction_bits);
    return std::abs(nearest) >= std::ldexp(1, format.largest_exponent) * 2 ? std::copysign(INFINITY, x)
                                                                           : nearest;
}

/// Returns the bits that encode x, a value of the format, put together from sign, exponent and fraction.
uint64_t bits_of(double x, const Format& format) {
    const int size = static_cast<int>(size_bytes(format.type)) * 8,
              exponent_bits = size - 1 - format.fraction_bits;
    const uint64_t sign = static_cast<uint64_t>(std::signbit(x)) << (size - 1);
    const uint64_t ones = (uint64_t{1} << exponent_bits) - 1;
    if (std::isinf(x)) return sign | ones << format.fraction_bits;
    if (x == 0) return sign;
    const int exponent = std::max(std::ilogb(x), format.smallest_exponent);
    const auto scaled = static_cast<uint64_t>(std::ldexp(std::abs(x), format.fraction_bits - exponent));
    const uint64_t hidden = uint64_t{1} << format.fraction_bits;
    const uint64_t biased = scaled < hidden ? 0 : exponent - format.smallest_exponent + 1;
    return sign | biased << format.fraction_bits | (scaled & (hidden - 1));
}

std::vector<std::byte> bytes_of(const std::vector<double>& values, const Format& format) {
    const size_t size = size_bytes(format.type);
    std::vector<std::byte> bytes(values.size() * size);
    for (size_t i = 0; i < values.size(); ++i) {
        const uint64_t bits = bits_of(values[i], format);
        std::memcpy(&bytes[i * size], &bits, size);
    }
    return bytes;
}

/// Returns special values, 20000 random values or midpoints of values per narrow format with their
/// neighbouring doubles, and random doubles.
std::vector<double> interesting(std::mt19937_64& random) {
    std::vector<double> values = {0.0,
                                  -0.0,
                                  INFINITY,
                                  -INFINITY,
                                  1e300,
                                  -1e300,
                                  5e-324,
                                  65504,
                                  65519.999,
                                  65520,
                                  3.4e38,
                                  3.5e38,
                                  std::numeric_limits<float>::max(),
                                  std::numeric_limits<float>::denorm_min() / 2};
    for (const Format& format : {kBFloat16, kHalf, kFloat}) {
        for (int i = 0; i < 20000; ++i) {
            const int exponent =
                format.smallest_exponent - format.fraction_bits - 2 +
                static_cast<int>(random() % (format.largest_exponent - format.smallest_exponent +
                                             format.fraction_bits + 4));
            const auto whole = static_cast<double>(random() >> (63 - format.fraction_bits));
            const double value =
                std::ldexp(whole + 0.5 * static_cast<double>(random() % 2), exponent - format.fraction_bits);
            for (const double near : {value, std::nextafter(value, 0), std::nextafter(value, INFINITY)}) {
                values.push_back(random() % 2 == 0 ? near : -near);
            }
        }
    }
    for (int i = 0; i < 50000; ++i) {
        const auto value = std::bit_cast<double>(random());
        if (!std::isnan(value)) values.push_back(value);
    }
    return values;
}

TEST(ConvertElements, RoundsOnceToTheNearest) {
    std::mt19937_64 random(17);
    const std::vector<double> all = interesting(random);
    for (const Format& from : {kDouble, kFloat, kBFloat16, kHalf}) {
        std::vector<double> values;
        for (const double value : all) values.push_back(rounded(value, from));
        const std::vector<std::byte> in = bytes_of(values, from);
        for (const Format& to : {kDouble, kFloat, kBFloat16, kHalf}) {
            SCOPED_TRACE(std::string(h5::name(from.type)) + " to " + h5::name(to.type));
            std::vector<double> expected;
            for (const double value : values) expected.push_back(rounded(value, to));
            const std::vector<std::byte> wanted = bytes_of(expected, to);
            std::vector<std::byte> out(wanted.size());
            convert_elements(from.type, in, to.type, out);
            ASSERT_EQ(std::memcmp(out.data(), wanted.data(), out.size()), 0);
        }
    }
}

TEST(ConvertElements, NaNStaysNaN) {
    const double not_a_number = std::nan("");
    std::vector<std::byte> in(sizeof(double));
    std::memcpy(in.data(), &not_a_number, sizeof(double));
    for (const Format& format : {kFloat, kBFloat16, kHalf}) {
        std::vector<std::byte> narrow(size_bytes(format.type)), wide(sizeof(double));
        convert_elements(ElementType::Float64, in, format.type, narrow);
        convert_elements(format.type, narrow, ElementType::Float64, wide);
        double back = 0;
        std::memcpy(&back, wide.data(), sizeof(double));
        EXPECT_TRUE(std::isnan(back)) << h5::name(format.type);
    }
}

TEST(ConvertElements, CountsInfinities) {
    const std::vector<double> values = {0, 1, -INFINITY, 65504, 1e-45, INFINITY, -3e38};
    for (const Format& format : {kDouble, kFloat, kBFloat16}) {
        EXPECT_EQ(num_not_finite(format.type, bytes_of(values, format)), 2) << h5::name(format.type);
    }
    const std::vector<double> narrow = {0, 65504, -INFINITY, -65504, 6e-8};
    EXPECT_EQ(num_not_finite(ElementType::Float16, bytes_of(narrow, kHalf)), 1);
}

TEST(ConvertElements, EqualTypesAreCopiedBitForBit) {
    const std::vector<std::byte> in(64, std::byte{0xff});  // NaNs with every bit set
    for (const ElementType type : {ElementType::Float64, ElementType::Float32, ElementType::BFloat16,
                                   ElementType::Float16, ElementType::Int64}) {
        std::vector<std::byte> out(in.size());
        convert_elements(type, in, type, out);
        EXPECT_EQ(out, in);
    }
}

}  // namespace
}  // namespace argosy::interop
