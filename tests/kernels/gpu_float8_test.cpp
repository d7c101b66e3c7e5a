// Casts to float8 on GPUs, against the CPU's kernels: the same bits.
#include <algorithm>
#include <limits>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/element_type.h"
#include "kernels/gpu_test.h"

namespace argosy::kernels {
namespace {

enum class Groups { Matrix, Rows, Columns };

struct Case {
    int64_t num_rows, row_size, gap = 0;
    bool aligned = true;
    int64_t stride() const { return row_size + gap; }
};
constexpr Case kCases[] = {{1, 1},       {3, 7},      {64, 64},
                           {65, 66},     {32, 256},   {96, 160},
                           {70, 192, 8}, {33, 72, 3}, {128, 96, 0, false},
                           {8, 2600, 8}, {130, 132},  {200, 32},
                           {70, 1},      {1, 64},     {545, 40},
                           {512, 8}};
/// Of casts: tiles of 128 x 128 that end early, in squares of 8 x 8 and within one.
constexpr Case kTileCases[] = {{136, 264},    {264, 120, 8}, {128, 136},          {8, 8},
                               {160, 136, 3}, {137, 136},    {136, 264, 0, false}};

template <class T>
Grouped<T> grouped(const Case& size, const T* x, Groups groups) {
    Grouped<T> made{x, size.num_rows, size.row_size, size.stride(), 1, 1};
    if (groups == Groups::Matrix) made.group_rows = size.num_rows, made.group_columns = size.row_size;
    if (groups == Groups::Rows) made.group_columns = size.row_size;
    if (groups == Groups::Columns) made.group_rows = size.num_rows;
    return made;
}

template <class T>
int64_t groups_of_a_row(const Grouped<T>& x) {
    return x.row_size / x.group_columns;
}
template <class T>
int64_t num_groups(const Grouped<T>& x) {
    return groups_of_a_row(x) * (x.num_rows / x.group_rows);
}

template <class T>
class GpuFloat8 : public GpuTest {
  protected:
    /// Calls use(size, groups) for each case and each kind of group.
    template <class Use>
    void for_each_case(std::span<const Case> cases, const Use& use) {
        for (const Case& size : cases) {
            SCOPED_TRACE(std::to_string(size.num_rows) + " x " + std::to_string(size.row_size));
            for (const Groups groups : {Groups::Matrix, Groups::Rows, Groups::Columns}) use(size, groups);
        }
    }

    static Memory<float> zeros(int64_t count) {
        Memory<float> made(count, true);
        for (int64_t i = 0; i < count; ++i) made[i] = 0;
        return made;
    }
};
using ElementTypes = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(GpuFloat8, ElementTypes);

TYPED_TEST(GpuFloat8, LargestMagnitudesAreTheCpus) {
    using T = TypeParam;
    this->for_each_case(kCases, [&](const Case& size, Groups groups) {
        auto x = this->template random<T>(size.num_rows * size.stride(), size.aligned, 10);
        x[x.size() / 2] = narrow<T>(-std::numeric_limits<float>::infinity());
        const int64_t count = num_groups(grouped<T>(size, nullptr, groups));
        const int64_t stride = groups_of_a_row(grouped<T>(size, nullptr, groups));
        const auto [found] = in_any_order([&] {
            Memory<float> largest = this->zeros(count);
            this->template gpu<T>().largest_magnitudes(
                {grouped(size, x.gpu(), groups), largest.gpu(), stride}, nullptr);
            return std::tuple(largest);
        });
        EXPECT_EQ(found.faults_outside(), 0);
        Memory<float> right = this->zeros(count);
        // the CPU's kernel has groups of rows or of columns; the whole matrix is a group of rows of one row
        if (groups == Groups::Matrix) {
            for (int64_t i = 0; i < x.size(); ++i) {
                if (i % size.stride() < size.row_size)
                    right[0] = std::max(right[0], std::abs(static_cast<float>(x.at(i))));
            }
        } else {
            table().of<T>().largest_magnitudes({grouped(size, x.host(), groups), right.host(), stride});
        }
        for (int64_t i = 0; i < count; ++i) ASSERT_EQ(found.at(i), right.at(i)) << i;
    });
}

// Matrices of several blocks, dense and not, in packs and not; what lies between their rows is larger.
TYPED_TEST(GpuFloat8, LargestMagnitudeOfAMatrixIsFoundAnywhere) {
    using T = TypeParam;
    for (const Case& size :
         {Case{136, 264}, {136, 264, 8}, {67, 131}, {67, 131, 3}, {1, 20000}, {1, 300, 7}}) {
        auto x = this->template random<T>(size.num_rows * size.stride());
        for (int64_t i = 0; i < x.size(); ++i) {
            if (i % size.stride() >= size.row_size) x[i] = narrow<T>(100);
        }
        const int64_t last = size.num_rows * size.row_size - 1;
        for (const int64_t i : {int64_t{0}, last / 2, last - 1, last}) {
            const int64_t at = i / size.row_size * size.stride() + i % size.row_size;
            const T before = std::as_const(x)[at];
            x[at] = narrow<T>(-50);
            const auto [found] = in_any_order([&] {
                Memory<float> largest = this->zeros(1);
                this->template gpu<T>().largest_magnitudes(
                    {grouped(size, std::as_const(x).gpu(), Groups::Matrix), largest.gpu(), 1}, nullptr);
                return std::tuple(largest);
            });
            EXPECT_EQ(found.at(0), 50) << size.num_rows << " x " << size.row_size << ", element " << i;
            x[at] = before;
        }
    }
}

TYPED_TEST(GpuFloat8, LargestMagnitudesShowNaN) {
    using T = TypeParam;
    auto x = this->template random<T>(64 * 64);
    x[100] = narrow<T>(std::numeric_limits<float>::quiet_NaN());
    Memory<float> largest = this->zeros(1);
    const Grouped<T> matrix{x.gpu(), 64, 64, 64, 64, 64};
    this->template gpu<T>().largest_magnitudes({matrix, largest.gpu(), 1}, nullptr);
    EXPECT_TRUE(std::isnan(largest.at(0)));
}

using GpuFloat8Scales = GpuTest;
TEST_F(GpuFloat8Scales, AreQuotientsInFp64) {
    constexpr float kNumber = 448;
    const std::vector<float> largest = {0,        1e-13F, 3,
                                        448,      449,    std::numeric_limits<float>::infinity(),
                                        1.7e-38F, 57344,  std::numeric_limits<float>::quiet_NaN()};
    const auto count = static_cast<int64_t>(largest.size());
    Memory<float> from(count, true);
    for (int64_t i = 0; i < count; ++i) from[i] = largest[i];
    for (const bool power_of_two : {false, true}) {
        Memory<float> factors(count, true), scales(count, true);
        gpu_table()->float8_scales(
            {count, std::as_const(from).gpu(), kNumber, 1e-12, power_of_two, factors.gpu(), scales.gpu()},
            nullptr);
        for (int64_t i = 0; i + 1 < count; ++i) {
            float right = static_cast<float>(double{kNumber} / std::max(double{largest[i]}, 1e-12));
            if (power_of_two && right > 0) right = std::exp2(std::floor(std::log2(right)));
            EXPECT_EQ(factors.at(i), right) << largest[i];
            EXPECT_EQ(scales.at(i), 1 / right) << largest[i];
        }
        EXPECT_EQ(std::isnan(factors.at(count - 1)), !power_of_two);
    }
}

/// Zeros, subnormal numbers, powers of two and 448 times them with their neighbours, the largest numbers,
/// infinity and NaN.
std::vector<float> largest_of_blocks() {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    std::vector<float> all = {0, kInfinity, std::numeric_limits<float>::max(),
                              std::numeric_limits<float>::quiet_NaN()};
    for (int exponent = -150; exponent < 128; ++exponent) {
        for (const float size : {1.0F, 1.37F, 448.0F}) {
            const float x = std::ldexp(size, exponent);
            for (const float each : {std::nextafter(x, 0.0F), x, std::nextafter(x, kInfinity)})
                all.push_back(each);
        }
    }
    return all;
}

/// The exponent that CastBlocks stores.
int exponent_of_block(float largest, bool round_up) {
    constexpr float kLargest = 448;
    if (!std::isfinite(largest)) return 255;
    int exponent = -127;
    if (round_up && largest / kLargest > 0) {
        exponent = -126;
        while (std::ldexp(1.0F, exponent) < largest / kLargest) ++exponent;
    } else if (!round_up && largest > 0) {
        exponent = std::max(std::ilogb(largest) - std::ilogb(kLargest), -127);
    }
    return exponent + 127;
}

TEST_F(GpuFloat8Scales, OfBlocksArePowersOfTwo) {
    constexpr int64_t kBlock = 32;
    const std::vector<float> largest = largest_of_blocks();
    const auto count = static_cast<int64_t>(largest.size());
    Memory<float> x(count * kBlock, true);
    for (int64_t i = 0; i < x.size(); ++i)
        x[i] = i % kBlock == i / kBlock % kBlock ? -largest[i / kBlock] : 0;
    for (const bool round_up : {false, true}) {
        Memory<uint8_t> exponents(count, true), values(x.size(), true);
        const Grouped<float> matrix{std::as_const(x).gpu(), count, kBlock, kBlock, 1, kBlock};
        gpu<float>().cast_blocks({matrix, round_up, exponents.gpu(), 1, values.gpu(), kBlock}, {}, nullptr);
        for (int64_t i = 0; i < count; ++i) {
            const float size = largest[i];
            const int exponent = exponent_of_block(size, round_up);
            ASSERT_EQ(exponents[i], exponent) << size << (round_up ? " up" : "");
            if (exponent == 255) continue;
            const float factor = std::ldexp(1.0F, std::min(127 - exponent, 126));
            ASSERT_EQ(values[i * kBlock + i % kBlock], Float8E4M3::saturated(-size * factor)) << size;
        }
    }
}

/// Blocks of rows, of columns and of tiles, with tiles that end early.
struct BlockCase {
    Case size;
    int64_t rows, columns;
};
constexpr BlockCase kBlockCases[] = {{{1, 32}, 1, 32},          {{3, 64}, 1, 32},
                                     {{137, 160}, 1, 32},       {{70, 160, 8}, 1, 32},
                                     {{33, 96, 3}, 1, 32},      {{40, 96, 0, false}, 1, 32},
                                     {{5, 128}, 1, 128},        {{140, 384}, 1, 128},
                                     {{32, 1}, 32, 1},          {{64, 7}, 32, 1},
                                     {{160, 136}, 32, 1},       {{96, 72, 8}, 32, 1},
                                     {{64, 33, 3}, 32, 1},      {{96, 40, 0, false}, 32, 1},
                                     {{128, 5}, 128, 1},        {{384, 140}, 128, 1},
                                     {{128, 128}, 128, 128},    {{256, 384, 8}, 128, 128},
                                     {{256, 128, 3}, 128, 128}, {{128, 256, 0, false}, 128, 128}};

TYPED_TEST(GpuFloat8, BlocksHaveTheirScalesAndValues) {
    using T = TypeParam;
    for (const auto& [size, group_rows, group_columns] : kBlockCases) {
        SCOPED_TRACE(std::to_string(size.num_rows) + " x " + std::to_string(size.row_size) + " in " +
                     std::to_string(group_rows) + " x " + std::to_string(group_columns));
        const int64_t stride = size.row_size / group_columns, count = size.num_rows * size.row_size;
        const auto block_of = [&, rows = group_rows, columns = group_columns](int64_t row, int64_t column) {
            return row / rows * stride + column / columns;
        };
        auto x = this->template random<T>(size.num_rows * size.stride(), size.aligned, 10);
        std::vector<float> largest(size.num_rows / group_rows * stride);
        for (int64_t row = 0; row < size.num_rows; ++row) {
            for (int64_t column = 0; column < size.row_size; ++column) {
                const int64_t at = row * size.stride() + column, block = block_of(row, column);
                x[at] = narrow<T>(std::ldexp(x.at(at), static_cast<int>(block % 13) - 6));
                largest[block] = std::max(largest[block], static_cast<float>(std::abs(x.at(at))));
            }
        }
        for (const bool round_up : {false, true}) {
            const auto [exponents, other_exponents, values, transposed] = in_any_order([&] {
                Memory<uint8_t> found[4] = {{static_cast<int64_t>(largest.size()), true},
                                            {static_cast<int64_t>(largest.size()), true},
                                            {count, size.aligned},
                                            {count, size.aligned}};
                const Grouped<T> matrix{std::as_const(x).gpu(), size.num_rows, size.row_size,
                                        size.stride(),          group_rows,    group_columns};
                const auto& kernels = this->template gpu<T>();
                kernels.cast_blocks({matrix, round_up, found[0].gpu(), stride, found[2].gpu(), size.row_size},
                                    {}, nullptr);
                kernels.cast_blocks({matrix, round_up, found[1].gpu(), stride, nullptr, 0},
                                    {found[3].gpu(), size.num_rows}, nullptr);
                return std::tuple(found[0], found[1], found[2], found[3]);
            });
            for (const auto* each : {&exponents, &other_exponents, &values, &transposed})
                EXPECT_EQ(each->faults_outside(), 0);
            for (size_t i = 0; i < largest.size(); ++i) {
                ASSERT_EQ(exponents[i], exponent_of_block(largest[i], round_up)) << largest[i];
                ASSERT_EQ(other_exponents[i], exponents[i]);
            }
            for (int64_t i = 0; i < count; ++i) {
                const int64_t row = i / size.row_size, column = i % size.row_size;
                const float scale = std::ldexp(1.0F, exponents[block_of(row, column)] - 127);
                ASSERT_EQ(values[i], Float8E4M3::saturated(
                                         static_cast<float>(x.at(row * size.stride() + column)) / scale))
                    << i;
                ASSERT_EQ(transposed[column * size.num_rows + row], values[i]) << i;
            }
        }
    }
}

TYPED_TEST(GpuFloat8, ABlockWithNaNOrInfinityHasTheNaNScale) {
    using T = TypeParam;
    constexpr int64_t kSide = 256;
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 128}, {128, 1}, {128, 128}}) {
        auto x = this->template random<T>(kSide * kSide);
        x[130 * kSide + 3] = narrow<T>(std::numeric_limits<float>::quiet_NaN());
        x[3 * kSide + 130] = narrow<T>(-std::numeric_limits<float>::infinity());
        const int64_t stride = kSide / columns;
        Memory<uint8_t> exponents(kSide / rows * stride, true), values(kSide * kSide, true);
        const Grouped<T> matrix{std::as_const(x).gpu(), kSide, kSide, kSide, rows, columns};
        this->template gpu<T>().cast_blocks({matrix, true, exponents.gpu(), stride, values.gpu(), kSide}, {},
                                            nullptr);
        std::vector<int64_t> found;
        for (int64_t i = 0; i < exponents.size(); ++i) {
            if (exponents[i] == 255) found.push_back(i);
        }
        std::vector<int64_t> expected = {3 / rows * stride + 130 / columns,
                                         130 / rows * stride + 3 / columns};
        std::sort(expected.begin(), expected.end());
        EXPECT_EQ(found, expected) << rows << " x " << columns;
    }
}

TYPED_TEST(GpuFloat8, CastsAndTransposesAreTheCpus) {
    using T = TypeParam;
    const auto check = [&](const Case& size, Groups groups) {
        const auto x = this->template random<T>(size.num_rows * size.stride(), size.aligned, 100);
        const Grouped<T> shape = grouped<T>(size, nullptr, groups);
        Memory<float> factors(num_groups(shape), true);
        for (int64_t i = 0; i < factors.size(); ++i)
            factors[i] = std::ldexp(1.37F, static_cast<int>(i % 5) - 2 - 12 * static_cast<int>(i % 2));
        for (const Float8Type type : {Float8Type::E4M3, Float8Type::E5M2}) {
            const int64_t count = size.num_rows * size.row_size, stride = groups_of_a_row(shape);
            Memory<uint8_t> right(count, size.aligned);
            table().of<T>().cast_to_float8(
                {grouped(size, x.host(), groups), factors.host(), stride, type, right.host(), size.row_size});
            const auto [values, transposed, both, both_transposed] = in_any_order([&] {
                Memory<uint8_t> results[4] = {{count, size.aligned},
                                              {count, size.aligned},
                                              {count, size.aligned},
                                              {count, size.aligned}};
                const auto cast = [&](uint8_t* plain, uint8_t* other) {
                    this->template gpu<T>().cast_to_float8(
                        {grouped(size, x.gpu(), groups), factors.gpu(), stride, type, plain, size.row_size},
                        {other, size.num_rows}, nullptr);
                };
                cast(results[0].gpu(), nullptr);
                cast(nullptr, results[1].gpu());
                cast(results[2].gpu(), results[3].gpu());
                return std::tuple(results[0], results[1], results[2], results[3]);
            });
            for (const auto* each : {&values, &transposed, &both, &both_transposed})
                EXPECT_EQ(each->faults_outside(), 0);
            for (int64_t i = 0; i < count; ++i) {
                const int64_t at = i % size.row_size * size.num_rows + i / size.row_size;
                ASSERT_EQ(values[i], right[i]) << i;
                ASSERT_EQ(both[i], right[i]) << i;
                ASSERT_EQ(transposed[at], right[i]) << i;
                ASSERT_EQ(both_transposed[at], right[i]) << i;
            }
        }
    };
    this->for_each_case(kCases, check);
    this->for_each_case(kTileCases, check);
}

// Values at and beyond the limits of the formats, and all numbers of the narrow types.
TYPED_TEST(GpuFloat8, EveryNumberIsRoundedAsOnTheCpu) {
    using T = TypeParam;
    constexpr int64_t kAll = 1 << 16;
    Memory<T> x(kAll, true);
    for (int64_t i = 0; i < kAll; ++i) {
        const auto bits = static_cast<uint16_t>(i * 40503);  // neighbours differ
        if constexpr (std::is_same_v<T, float>)
            x[i] = std::bit_cast<float>(uint32_t{bits} << 16 | static_cast<uint32_t>(this->engine_()) >> 16);
        if constexpr (!std::is_same_v<T, float>) x[i] = {bits};
    }
    Memory<float> one(1, true);
    one[0] = 1;
    for (const Float8Type type : {Float8Type::E4M3, Float8Type::E5M2}) {
        Memory<uint8_t> found(kAll, true);
        const Grouped<T> matrix{x.gpu(), 256, 256, 256, 256, 256};
        this->template gpu<T>().cast_to_float8({matrix, one.gpu(), 1, type, found.gpu(), 256}, {}, nullptr);
        for (int64_t i = 0; i < kAll; ++i) {
            const auto number = static_cast<float>(x.at(i));
            const uint8_t right =
                type == Float8Type::E4M3 ? Float8E4M3::saturated(number) : Float8E5M2::saturated(number);
            if (std::isnan(number)) {
                ASSERT_EQ(found[i] & 0x7F, 0x7F) << i;
            } else {
                ASSERT_EQ(found[i], right) << number;
            }
        }
    }
}

TEST(GpuBytes, AreTransposed) {
    if (!has_gpu()) GTEST_SKIP() << "no GPU here";
    std::vector<Case> cases(std::begin(kCases), std::end(kCases));
    cases.insert(cases.end(), std::begin(kTileCases), std::end(kTileCases));
    for (const Case& size : cases) {
        Memory<uint8_t> x(size.num_rows * size.stride(), size.aligned);
        for (int64_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint8_t>(i * 37 % 251);
        Memory<uint8_t> found(size.num_rows * size.row_size, size.aligned);
        gpu_table()->transpose_bytes(
            {x.gpu(), size.num_rows, size.row_size, size.stride(), {found.gpu(), size.num_rows}}, nullptr);
        EXPECT_EQ(found.faults_outside(), 0);
        for (int64_t row = 0; row < size.num_rows; ++row) {
            for (int64_t column = 0; column < size.row_size; ++column)
                ASSERT_EQ(found[column * size.num_rows + row], x[row * size.stride() + column]);
        }
    }
    reset_place();
}

}  // namespace
}  // namespace argosy::kernels
