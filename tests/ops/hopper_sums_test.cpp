// Products of float8 with the sums of a Hopper GPU, bit for bit against a model of these sums in integers.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>

#include "ops/float8.h"
#include "ops/matmul.h"
#include "ops/ops_test.h"

namespace argosy::ops {
namespace {

/// significand * 2^power.
struct Exact {
    int64_t significand = 0;
    int power = 0;
};

/// x as a multiple of 2^power, rounded towards zero.
int64_t multiple_of(const Exact& x, int power) {
    const int shift = x.power - power;
    const int64_t size = std::abs(x.significand);
    const int64_t shifted = shift >= 0 ? size << shift : shift > -63 ? size >> -shift : 0;
    return x.significand < 0 ? -shifted : shifted;
}

/// An element of float8 from its bits: sign, exponent field, fraction.
struct Element {
    Exact number;
    int exponent;

    Element(int bits, bool e4m3) {
        const int fraction_bits = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
        const int field = (bits & 127) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
        exponent = (field == 0 ? 1 : field) - bias;
        number.significand = (field == 0 ? 0 : 1 << fraction_bits) + fraction;
        if (bits >= 128) number.significand = -number.significand;
        number.power = exponent - fraction_bits;
    }
};

/// The sum so far and 32 products become the next sum.
class HopperSum {
  public:
    void add(const std::vector<std::pair<Element, Element>>& factors) {
        int largest = std::numeric_limits<int>::min();
        if (sum_.significand != 0) largest = sum_.power + width(sum_.significand) - 1;
        for (const auto& [a, b] : factors) {
            if (a.number.significand * b.number.significand == 0) continue;
            largest = std::max(largest, a.exponent + b.exponent);
        }
        if (largest == std::numeric_limits<int>::min()) return;  // zeros only
        Exact total{multiple_of(sum_, largest - 13), largest - 13};
        for (const auto& [a, b] : factors) {
            const Exact product{a.number.significand * b.number.significand, a.number.power + b.number.power};
            total.significand += multiple_of(product, total.power);
        }
        const int dropped = std::max(0, width(total.significand) - 14);
        sum_ = {multiple_of(total, total.power + dropped), total.power + dropped};
    }
    float value() const { return std::ldexp(static_cast<float>(sum_.significand), sum_.power); }

  private:
    static int width(int64_t x) { return std::bit_width(static_cast<uint64_t>(std::abs(x))); }
    Exact sum_;
};

/// A row of a times a column of b.
float expected_element(const at::Tensor& a, const at::Tensor& b, int64_t row, int64_t column, bool fast) {
    const int64_t k = a.size(1), terms_of_chain = fast ? k : 128;
    float promoted = 0;
    for (int64_t chain = 0; chain < k; chain += terms_of_chain) {
        HopperSum sum;
        const int64_t chain_end = std::min(k, chain + terms_of_chain);
        for (int64_t first = chain; first < chain_end; first += 32) {
            std::vector<std::pair<Element, Element>> factors;
            for (int64_t i = first; i < std::min(chain_end, first + 32); ++i) {
                const auto bits = [](const at::Tensor& x, int64_t r, int64_t c) {
                    return static_cast<const uint8_t*>(x.const_data_ptr())[r * x.stride(0) + c * x.stride(1)];
                };
                const auto e4m3 = [](const at::Tensor& x) {
                    return x.scalar_type() == at::ScalarType::Float8_e4m3fn;
                };
                factors.emplace_back(Element(bits(a, row, i), e4m3(a)), Element(bits(b, i, column), e4m3(b)));
            }
            sum.add(factors);
        }
        promoted += sum.value();
    }
    return promoted;
}

class HopperSums : public OpsTest {
  protected:
    static constexpr auto kE4M3 = at::ScalarType::Float8_e4m3fn, kE5M2 = at::ScalarType::Float8_e5m2;

    /// All exponents and fractions are equally frequent, or half of the elements are zero.
    Operand any_numbers(int64_t rows, int64_t columns, at::ScalarType type, bool sparse = false) {
        at::Tensor bits = at::empty({rows, columns}, at::kByte);
        const int first_nonfinite = type == kE4M3 ? 0x7F : 0x7C;
        for (int64_t i = 0; i < bits.numel(); ++i) {
            const auto code = static_cast<uint8_t>(engine_());
            const bool kept = (code & 127) < first_nonfinite && (!sparse || engine_() % 2 == 0);
            bits.mutable_data_ptr<uint8_t>()[i] = kept ? code : 0;
        }
        return {bits.view(type), at::full({1, 1}, 1, at::kFloat), at::kFloat};
    }
    static void expect_sums(const at::Tensor& found, const at::Tensor& a, const at::Tensor& b, bool fast) {
        for (int64_t row = 0; row < found.size(0); ++row) {
            for (int64_t column = 0; column < found.size(1); ++column) {
                const float expected = expected_element(a, b, row, column, fast);
                ASSERT_EQ(found.const_data_ptr<float>()[row * found.size(1) + column], expected)
                    << row << ", " << column << " of " << found.sizes() << ", k " << a.size(1);
            }
        }
    }

    const Recipe& recipe_ = *find_recipe("tensorwise", Accumulation::Hopper);
    std::mt19937 engine_{7};
};

TEST_P(HopperSums, HaveTheBitsOfTheModel) {
    struct Sizes {
        int64_t tokens, out, in;
    };
    for (const auto& [tokens, out, in] : {Sizes{3, 70, 48}, {160, 5, 16}, {2, 3, 1200}, {530, 66, 3}}) {
        for (const bool sparse : {false, true}) {
            const Operand x = any_numbers(tokens, in, kE4M3), dy = any_numbers(tokens, out, kE5M2, sparse);
            const Stack weight{{}, any_numbers(out, in, kE4M3, sparse), &recipe_};
            expect_sums(linear(x, weight), x.values, weight.all.values.t(), /*fast=*/true);
            expect_sums(linear_input_gradient(dy, weight), dy.values, weight.all.values, /*fast=*/false);
            at::Tensor gradient = at::empty({out, in}, at::kFloat);
            linear_weight_gradient(gradient, dy, x, /*accumulate=*/false, recipe_.accumulation);
            expect_sums(gradient, dy.values.t(), x.values, /*fast=*/false);
        }
    }
}

/// Each 128 products are a sum of tensor cores, which is scaled and added in fp32.
TEST_P(HopperSums, OfBlocksAreScaledOneByOne) {
    const Recipe& recipe = *find_recipe("blockwise", Accumulation::Hopper);
    const auto in_blocks = [&](int64_t rows, int64_t columns, int64_t block_rows, int64_t block_columns) {
        Operand made = any_numbers(rows, columns, kE4M3);
        at::Tensor bits = at::empty({rows / block_rows, columns / block_columns}, at::kByte);
        for (int64_t i = 0; i < bits.numel(); ++i)
            bits.mutable_data_ptr<uint8_t>()[i] = static_cast<uint8_t>(120 + engine_() % 15);
        made.scale = bits.view(at::ScalarType::Float8_e8m0fnu);
        return made;
    };
    const auto expect = [](const at::Tensor& found, const Operand& a, const Operand& b) {
        const auto scale_of = [](const Operand& x, int64_t row, int64_t column) {
            const int64_t rows = x.values.size(0) / x.scale.size(0),
                          columns = x.values.size(1) / x.scale.size(1);
            return x.scale.to(at::kFloat)[row / rows][column / columns].item<float>();
        };
        for (int64_t row = 0; row < found.size(0); ++row) {
            for (int64_t column = 0; column < found.size(1); ++column) {
                float sum = 0;
                for (int64_t k = 0; k < a.values.size(1); k += 128)
                    sum +=
                        expected_element(a.values.narrow(1, k, 128), b.values.narrow(0, k, 128), row, column,
                                         /*fast=*/false) *
                        scale_of(a, row, k) * scale_of(b, k, column);
                ASSERT_EQ(found[row][column].item<float>(), sum) << row << ", " << column;
            }
        }
    };
    const Stack weight{{}, in_blocks(128, 384, 128, 128), &recipe};
    const Operand x = in_blocks(3, 384, 1, 128), dy = in_blocks(3, 128, 1, 128);
    expect(linear(x, weight), x, weight.all.transposed());
    expect(linear_input_gradient(dy, weight), dy, weight.all);
    const Operand all_dy = in_blocks(256, 5, 128, 1), all_x = in_blocks(256, 6, 128, 1);
    at::Tensor gradient = at::empty({5, 6}, at::kFloat);
    linear_weight_gradient(gradient, all_dy, all_x, /*accumulate=*/false, recipe.accumulation);
    expect(gradient, all_dy.transposed(), all_x);
}

TEST_P(HopperSums, AreLessPreciseThanFp32) {
    const Operand x = any_numbers(4, 4096, kE4M3);
    const Stack hopper{{}, any_numbers(8, 4096, kE4M3), &recipe_}, fp32{{}, hopper.all, &kNoCasts};
    const at::Tensor exact = x.values.to(at::kDouble).mm(hopper.all.values.to(at::kDouble).t());
    const auto error = [&](const at::Tensor& found) {
        return ((found.to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
    };
    EXPECT_LT(error(linear(x, fp32)), 1e-6);
    EXPECT_GT(error(linear(x, hopper)), 1e-4);
    EXPECT_LT(error(linear(x, hopper)), 1e-2);
}

TEST_P(HopperSums, ARowDoesNotDependOnTheOthers) {
    const Operand x = any_numbers(300, 700, kE4M3);
    const Stack weight{{}, any_numbers(80, 700, kE4M3), &recipe_};
    const at::Tensor all = linear(x, weight);
    EXPECT_TRUE(identical(linear(x.narrow(0, 290, 7), weight), all.narrow(0, 290, 7)));
}

TEST_P(HopperSums, NanShowsInItsRowAndColumnOnly) {
    for (const int64_t at : {3, 900}) {
        Operand x = any_numbers(3, 1100, kE4M3);
        Stack weight{{}, any_numbers(5, 1100, kE4M3), &recipe_};
        x.values.view(at::kByte)[1][at] = 0x7F;
        weight.all.values.view(at::kByte)[2][at] = 0xFF;
        const at::Tensor found = linear(x, weight).isnan(), expected = at::zeros({3, 5}, at::kBool);
        expected[1].fill_(true);
        expected.select(1, 2).fill_(true);
        EXPECT_TRUE(found.equal(expected)) << at;
    }
}

INSTANTIATE_TEST_SUITE_P(Variants, HopperSums, ::testing::Values(kVariants[4]), variant_name);  // fp32

}  // namespace
}  // namespace argosy::ops
