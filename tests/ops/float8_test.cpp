// Casts to float8 against a plain model of the formats in fp64, and products of float8 matrices against sums
// in fp64 of the numbers that the operands stand for.
#include "ops/float8.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/element_type.h"
#include "ops/float8_products.h"
#include "ops/matmul.h"
#include "ops/ops_test.h"

namespace argosy::ops {
namespace {

constexpr auto kE4M3 = at::ScalarType::Float8_e4m3fn, kE5M2 = at::ScalarType::Float8_e5m2;

/// All finite numbers of a format, in order, from its definition: sign, exponent and fraction.
std::vector<double> numbers_of(at::ScalarType type) {
    const int fraction_bits = type == kE4M3 ? 3 : 2, bias = type == kE4M3 ? 7 : 15;
    const double largest = type == kE4M3 ? 448 : 57344;
    std::vector<double> positive;
    for (int exponent = 0; exponent < 2 * bias + 2; ++exponent) {
        for (int fraction = 0; fraction < 1 << fraction_bits; ++fraction) {
            const double significand = (exponent > 0) + std::ldexp(fraction, -fraction_bits);
            const double value = std::ldexp(significand, std::max(exponent, 1) - bias);
            if (value <= largest) positive.push_back(value);
        }
    }
    std::vector<double> all;
    for (auto value = positive.rbegin(); value != positive.rend(); ++value) all.push_back(-*value);
    all.insert(all.end(), positive.begin(), positive.end());
    return all;
}

/// The number of the format that is nearest to x; of two, the one with an even fraction, which is at an even
/// distance from zero in the list.
double nearest(const std::vector<double>& numbers, double x) {
    if (std::fabs(x) >= numbers.back()) return std::copysign(numbers.back(), x);
    const auto zero = static_cast<int64_t>(numbers.size()) / 2;
    int64_t best = zero;
    for (int64_t i = 0; i < std::ssize(numbers); ++i) {
        const double distance = std::fabs(numbers[i] - x), least = std::fabs(numbers[best] - x);
        const bool even = (i >= zero ? i - zero : zero - 1 - i) % 2 == 0;
        if (distance < least || (distance == least && even)) best = i;
    }
    return std::copysign(std::fabs(numbers[best]), x);
}

/// Every number of the format, every midpoint between two, their neighbours in fp32, and what is too large.
std::vector<float> critical_values(at::ScalarType type) {
    std::vector<float> values;
    const std::vector<double> numbers = numbers_of(type);
    for (size_t i = 0; i + 1 < numbers.size(); ++i) {
        for (const double x : {numbers[i], (numbers[i] + numbers[i + 1]) / 2}) {
            const auto value = static_cast<float>(x);
            for (const float each : {std::nextafter(value, -1e30F), value, std::nextafter(value, 1e30F)}) {
                values.push_back(each);
            }
        }
    }
    for (const float x : {449.0F, 464.0F, 480.0F, 57345.0F, 61440.0F, 1e30F}) {
        values.push_back(x);
        values.push_back(-x);
    }
    return values;
}

at::Tensor row_of(const std::vector<float>& values) {
    at::Tensor row = at::empty({1, std::ssize(values)}, at::kFloat);
    std::copy(values.begin(), values.end(), row.mutable_data_ptr<float>());
    return row;
}

const Cast& cast_of(at::ScalarType type) {
    static const Cast e4m3{kE4M3, Scaling::Matrix}, e5m2{kE5M2, Scaling::Matrix};
    return type == kE4M3 ? e4m3 : e5m2;
}

TEST(Float8, CastsRoundToTheNearestNumber) {
    for (const at::ScalarType type : {kE4M3, kE5M2}) {
        const std::vector<double> numbers = numbers_of(type);
        const std::vector<float> values = critical_values(type);
        // A factor of 1: the largest magnitude is that of the format.
        const at::Tensor largest = at::full({1, 1}, numbers.back(), at::kFloat);
        const Operand found = cast(row_of(values), cast_of(type), SumOver::Columns, largest);
        EXPECT_EQ(found.scale.item<float>(), 1);
        const at::Tensor wide = found.values.to(at::kDouble);
        const auto* bits = static_cast<const uint8_t*>(found.values.const_data_ptr());
        for (size_t i = 0; i < values.size(); ++i) {
            const double expected = nearest(numbers, values[i]);
            EXPECT_EQ(wide[0][static_cast<int64_t>(i)].item<double>(), expected) << values[i];
            EXPECT_EQ(bits[i],
                      type == kE4M3 ? Float8E4M3::saturated(values[i]) : Float8E5M2::saturated(values[i]))
                << values[i];
        }
    }
}

TEST(Float8, EveryNumberIsANumberOfBf16) {
    for (const at::ScalarType type : {kE4M3, kE5M2}) {
        at::Tensor codes = at::empty({1, 256}, at::kByte);
        for (int i = 0; i < 256; ++i) codes.mutable_data_ptr<uint8_t>()[i] = static_cast<uint8_t>(i);
        const Operand all(codes.view(type), at::full({1, 1}, 1, at::kFloat), at::kBFloat16);
        const at::Tensor found = widened_to_bf16(all).to(at::kFloat),
                         expected = codes.view(type).to(at::kFloat);
        EXPECT_TRUE(found.isnan().equal(expected.isnan()));
        EXPECT_TRUE(found.nan_to_num(7).equal(expected.nan_to_num(7)));
    }
}

TEST(Float8, NonfiniteNumbersShow) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity}) {
        for (const char* name : {"tensorwise", "rowwise", "rowwise_with_gw_hp", "blockwise", "mxfp8_cublas",
                                 "mxfp8_cublas_rceil"}) {
            const Recipe& recipe = *find_recipe(name);
            for (const Recipe::Product& product :
                 {recipe.forward, recipe.input_gradient, recipe.weight_gradient}) {
                for (const Cast& how : {product.left, product.right}) {
                    at::Tensor x = at::full({128, 128}, 1, at::kFloat);
                    x[3][4] = bad;
                    const at::Tensor found = values_of(cast(x, how, SumOver::Columns, largest_magnitude(x)));
                    EXPECT_FALSE(std::isfinite(found[3][4].item<double>())) << name << " " << bad;
                }
            }
        }
    }
}

/// Blocks of so many rows and columns have the smallest power of two with which no element exceeds 448, and
/// the nearest numbers; blocks with an infinity or a NaN have the scale NaN.
void expect_blocks(const at::Tensor& x, const Operand& found, int64_t rows, int64_t columns) {
    const std::vector<double> numbers = numbers_of(kE4M3);
    const at::Tensor values = found.values.to(at::kDouble), scale = found.scale.to(at::kDouble);
    ASSERT_EQ(scale.sizes(), (at::IntArrayRef{x.size(0) / rows, x.size(1) / columns}));
    for (int64_t i = 0; i < scale.size(0); ++i) {
        for (int64_t k = 0; k < scale.size(1); ++k) {
            const auto block = [&](const at::Tensor& of) {
                const at::Tensor part =
                    of.narrow(0, i * rows, rows).narrow(1, k * columns, columns).contiguous();
                return std::vector<double>(part.const_data_ptr<double>(),
                                           part.const_data_ptr<double>() + part.numel());
            };
            const std::vector<double> from = block(x.to(at::kDouble)), to = block(values);
            if (std::ranges::any_of(from, [](double element) { return !std::isfinite(element); })) {
                ASSERT_TRUE(std::isnan(scale[i][k].item<double>()));
                continue;
            }
            double largest = 0, power = std::ldexp(1, -127);
            for (const double element : from) largest = std::max(largest, std::fabs(element));
            while (largest > 448 * power) power *= 2;
            ASSERT_EQ(scale[i][k].item<double>(), power);
            for (size_t e = 0; e < from.size(); ++e) ASSERT_EQ(to[e], nearest(numbers, from[e] / power));
        }
    }
}

class Float8Products : public OpsTest {
  protected:
    /// Elements of very different sizes.
    at::Tensor uneven(int64_t rows, int64_t columns) {
        const at::Tensor sizes = (normal({rows, 1}) + normal({1, columns})).to(at::kDouble).exp();
        return (normal({rows, columns}).to(at::kDouble) * sizes).to(GetParam().type);
    }
    Operand of(const at::Tensor& x, const Cast& how, SumOver summed) {
        return cast(x, how, summed, how.scaling == Scaling::Matrix ? largest_magnitude(x) : at::Tensor());
    }
    static Stack of(const Stack& weight, const Cast& how, SumOver summed) {
        return weight.cast(how, summed, largest_magnitude(weight.whole()));
    }
};

TEST_P(Float8Products, BlocksHaveTheLeastPowersOfTwo) {
    const Recipe& recipe = *find_recipe("blockwise");
    at::Tensor x = uneven(256, 256);
    x.narrow(1, 0, 128).zero_();             // blocks and a square of zeros
    x[7].narrow(0, 128, 128).fill_(0.4375);  // 448 / 1024 needs no larger scale
    x[200][20] = std::numeric_limits<float>::infinity();
    x[130][140] = std::numeric_limits<float>::quiet_NaN();
    expect_blocks(x, cast(x, recipe.forward.left, SumOver::Columns), 1, 128);
    expect_blocks(x, cast(x, recipe.weight_gradient.left, SumOver::Rows), 128, 1);
    for (const SumOver summed : {SumOver::Rows, SumOver::Columns})
        expect_blocks(x, cast(x, recipe.forward.right, summed), 128, 128);
    expect_blocks(x.t(), cast(x.t(), recipe.forward.right, SumOver::Columns), 128, 128);
}

constexpr const char* kNames[] = {"tensorwise", "rowwise", "blockwise", "mxfp8_cublas", "mxfp8_cublas_rceil"};

TEST_P(Float8Products, AllThreeSumInFp32) {
    if (GetParam().type == at::kDouble) GTEST_SKIP() << "sums are in fp32";
    for (const char* name : kNames) {
        SCOPED_TRACE(name);
        const Recipe& recipe = *find_recipe(name);
        const int64_t unit = recipe.forward.left.block_size;
        const at::Tensor x = uneven(2 * unit, 3 * unit), weight = uneven(unit, 3 * unit),
                         dy = uneven(2 * unit, unit), addend = uneven(2 * unit, unit);
        const Stack stack{{weight.narrow(0, 0, 20), weight.narrow(0, 20, unit - 20)}, weight, &recipe};
        {
            const Operand left = of(x, recipe.forward.left, SumOver::Columns);
            const Stack right = of(stack, recipe.forward.right, SumOver::Columns);
            const at::Tensor a = values_of(left), b = values_of(right.all).t();
            expect_product(linear(left, right), a, b);
            expect_product(add_linear(addend, left, right), a, b, addend);
            const at::Tensor part = linear(left.narrow(0, 32, 32), right);
            EXPECT_TRUE(identical(part, linear(left, right).narrow(0, 32, 32)));
        }
        {
            const Operand left = of(dy, recipe.input_gradient.left, SumOver::Columns);
            const Stack right = of(stack, recipe.input_gradient.right, SumOver::Rows);
            expect_product(linear_input_gradient(left, right), values_of(left), values_of(right.all));
        }
        {
            const Operand left = of(dy, recipe.weight_gradient.left, SumOver::Rows),
                          right = of(x, recipe.weight_gradient.right, SumOver::Rows);
            at::Tensor sum = uneven(unit, 3 * unit);
            const at::Tensor before = sum.clone();
            linear_weight_gradient(sum, left, right, /*accumulate=*/true);
            expect_product(sum, values_of(left).t(), values_of(right), before);
        }
    }
}

TEST_P(Float8Products, PartsOfAStackShareItsScale) {
    const Cast& how = find_recipe("tensorwise")->forward.right;
    const at::Tensor weight = uneven(32, 48);
    const Stack joined{{}, weight},
        apart{{weight.narrow(0, 0, 20).clone(), weight.narrow(0, 20, 12).clone()}};
    EXPECT_TRUE(of(joined, how, SumOver::Columns)
                    .all.values.view(at::kByte)
                    .equal(of(apart, how, SumOver::Columns).all.values.view(at::kByte)));
    EXPECT_TRUE(
        of(joined, how, SumOver::Columns).all.scale.equal(of(apart, how, SumOver::Columns).all.scale));
}

TEST_P(Float8Products, ABiasIsAdded) {
    if (GetParam().type == at::kDouble) GTEST_SKIP() << "sums are in fp32";
    const Recipe& recipe = *find_recipe("rowwise");
    const at::Tensor x = uneven(32, 48), weight = uneven(16, 48), bias = uneven(1, 16).view({16});
    const Operand left = of(x, recipe.forward.left, SumOver::Columns);
    const Stack right = of(Stack::of(weight), recipe.forward.right, SumOver::Columns);
    const Stack biases{{bias.narrow(0, 0, 6), bias.narrow(0, 6, 10)}};
    Operand wide = left;
    wide.type = at::kFloat;
    EXPECT_TRUE(identical(linear(left, right, biases),
                          linear(wide, right).add_(bias).to(left.type)));  // rounded once
}

ARGOSY_FOR_EACH_VARIANT(Float8Products);

}  // namespace
}  // namespace argosy::ops
