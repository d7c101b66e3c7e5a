#include "ops/matmul.h"

#include "gpu/device.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/frexp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ldexp.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/ops_test.h"

namespace argosy::ops {
namespace {

struct Sizes {
    int64_t tokens, in, out;
};
constexpr Sizes kSizes[] = {{1, 1, 1}, {7, 13, 5}, {2, 127, 1}, {33, 65, 129}, {64, 96, 32}};
using Tensors = std::vector<at::Tensor>;

class LinearTest : public OpsTest {
  protected:
    struct Case {
        at::Tensor x, weight, dy;
        Differentiated oracle;
    };
    Case make(const Sizes& sizes) {
        Case made{normal({sizes.tokens, sizes.in}),
                  normal({sizes.out, sizes.in}),
                  normal({sizes.tokens, sizes.out}),
                  {}};
        made.oracle = differentiate([](const auto& in) { return in[0].matmul(in[1].t()); },
                                    {made.x, made.weight}, made.dy);
        return made;
    }
};

TEST_P(LinearTest, ForwardAndInputGradient) {
    for (const Sizes& sizes : kSizes) {
        const Case c = make(sizes);
        EXPECT_TRUE(right(linear(c.x, c.weight), c.oracle.value));
        EXPECT_TRUE(right(linear_input_gradient(c.dy, c.weight), c.oracle.gradients[0]));
    }
}

/// Rows of `all`, either as views or each copied elsewhere.
Stack stack_of(const at::Tensor& all, bool joined) {
    Stack stack{.parts = all.split_with_sizes({5, 300, 0, all.size(0) - 305})};
    if (joined) {
        stack.all = all;
    } else {
        for (at::Tensor& part : stack.parts) part = part.clone();
    }
    return stack;
}

// One product, or several.
TEST_P(LinearTest, LayersThatShareTheirInput) {
    const Case c = make({7, 13, 333});
    const at::Tensor bias = normal({333});
    const at::Tensor biased = c.oracle.value + bias.to(at::kDouble);
    for (const bool joined : {true, false}) {
        const Stack weight = stack_of(c.weight, joined);
        EXPECT_EQ(weight.num_rows(), 333);
        EXPECT_TRUE(right(linear(c.x, weight, {}), c.oracle.value));
        EXPECT_TRUE(right(linear(c.x, weight, stack_of(bias, joined)), biased));
        EXPECT_TRUE(right(linear(c.x, weight, stack_of(bias, !joined)), biased));
        EXPECT_TRUE(right(linear_input_gradient(c.dy, weight), c.oracle.gradients[0]));
    }
}

TEST_P(LinearTest, ThePlacementOfLayersChangesNoBitOnACpu) {
    const Case c = make({70, 130, 505});
    if (gpu::holds(c.x)) GTEST_SKIP() << "a GPU rounds after each product";
    const at::Tensor bias = normal({505});
    const Stack joined = stack_of(c.weight, true), apart = stack_of(c.weight, false);
    EXPECT_TRUE(
        identical(linear(c.x, joined, stack_of(bias, true)), linear(c.x, apart, stack_of(bias, false))));
    EXPECT_TRUE(identical(linear_input_gradient(c.dy, joined), linear_input_gradient(c.dy, apart)));
}

/// The variants of the fused path; fp64 has no kernels.
bool uses_kernels(const Variant& variant) {
    return variant.path == Path::Fused && variant.type != at::kDouble;
}

// The addend has another layout; it keeps its values.
TEST_P(LinearTest, ASumWithAnotherMatrixIsRoundedOnce) {
    for (const Sizes& sizes : kSizes) {
        const Case c = make(sizes);
        const at::Tensor addend = normal({sizes.out, sizes.tokens}).t(), before = addend.clone();
        const at::Tensor y = add_linear(addend, c.x, c.weight),
                         again = add_linear(addend.contiguous(), c.x, c.weight);
        EXPECT_TRUE(right(y, c.oracle.value + addend.to(at::kDouble)));
        EXPECT_TRUE(identical(y, again));
        EXPECT_TRUE(identical(addend, before));
        const at::Tensor bias = normal({sizes.out}), biased = add_linear(addend, c.x, c.weight, bias);
        EXPECT_TRUE(right(biased, c.oracle.value + addend.to(at::kDouble) + bias.to(at::kDouble)));
        if (!uses_kernels(GetParam()) || y.scalar_type() == at::kFloat) continue;
        const at::Tensor wide = linear(c.x.to(at::kFloat), c.weight.to(at::kFloat)) + addend.to(at::kFloat);
        // Sums in another order may round to the other neighbour, but only next to the middle between both.
        const auto share = [](const at::Tensor& found, const at::Tensor& sum) {
            return (found == sum.to(found.scalar_type())).to(at::kDouble).mean().item<double>();
        };
        EXPECT_GE(share(y, wide), 0.99) << "elements that are the rounded sum";
        EXPECT_GE(share(biased, wide + bias), 0.99) << "elements that are the rounded sum, with a bias";
    }
}

TEST_P(LinearTest, WeightGradientIsWrittenOrAdded) {
    for (const Sizes& sizes : kSizes) {
        const Case c = make(sizes);
        at::Tensor sum =
            normal(c.weight.sizes(), /*scale=*/100);  // overwritten values must not affect the result
        linear_weight_gradient(sum, c.dy, c.x, /*accumulate=*/false);
        EXPECT_TRUE(right(sum, c.oracle.gradients[1]));
        linear_weight_gradient(sum, c.dy, c.x, /*accumulate=*/true);
        EXPECT_TRUE(right(sum, 2 * c.oracle.gradients[1]));
    }
}

TEST_P(LinearTest, WeightGradientMayBeWider) {
    for (const Sizes& sizes : kSizes) {
        const Case c = make(sizes);
        at::Tensor sum = random_.normal(c.weight.sizes(), at::kDouble, /*scale=*/100);
        linear_weight_gradient(sum, c.dy, c.x, /*accumulate=*/false);
        EXPECT_TRUE(close(sum, c.oracle.gradients[1], GetParam().tolerance));
        linear_weight_gradient(sum, c.dy, c.x, /*accumulate=*/true);
        EXPECT_TRUE(close(sum, 2 * c.oracle.gradients[1], GetParam().tolerance));
        EXPECT_EQ(sum.scalar_type(), at::kDouble);
    }
}

TEST_P(LinearTest, WeightGradientGoesIntoASliceOfALargerBuffer) {
    const Case c = make({7, 13, 5});
    const at::Tensor buffer = normal({9, 13});
    const at::Tensor before = buffer.narrow(0, 0, 2).clone(), after = buffer.narrow(0, 7, 2).clone();
    at::Tensor slice = buffer.narrow(0, 2, 5);
    linear_weight_gradient(slice, c.dy, c.x, /*accumulate=*/false);
    EXPECT_TRUE(right(buffer.narrow(0, 2, 5), c.oracle.gradients[1]));
    EXPECT_TRUE(identical(buffer.narrow(0, 0, 2), before));
    EXPECT_TRUE(identical(buffer.narrow(0, 7, 2), after));
}

TEST_P(LinearTest, NothingToSum) {
    for (const Sizes& sizes : {Sizes{0, 3, 5}, Sizes{4, 0, 5}, Sizes{4, 3, 0}, Sizes{0, 0, 0}}) {
        const at::Tensor x = normal({sizes.tokens, sizes.in}), weight = normal({sizes.out, sizes.in});
        const at::Tensor dy = normal({sizes.tokens, sizes.out});
        const at::Tensor y = linear(x, weight), dx = linear_input_gradient(dy, weight);
        EXPECT_TRUE(identical(y, at::zeros_like(dy)));  // no elements, or sums over none
        EXPECT_TRUE(identical(dx, at::zeros_like(x)));
        EXPECT_TRUE(identical(add_linear(dy, x, weight), dy));
        if (sizes.tokens != 0) continue;
        at::Tensor sum = normal(weight.sizes());
        const at::Tensor before = sum.clone();
        linear_weight_gradient(sum, dy, x, /*accumulate=*/true);
        EXPECT_TRUE(identical(sum, before));
        linear_weight_gradient(sum, dy, x, /*accumulate=*/false);
        EXPECT_TRUE(identical(sum, at::zeros_like(weight)));
    }
}

/// The same elements as x in another layout: 0 unchanged, 1 transposed, 2 with gaps of NaN in both dims.
at::Tensor laid_out(const at::Tensor& x, int layout) {
    if (layout == 0) return x;
    if (layout == 1) return x.t().contiguous().t();
    const at::Tensor wide = at::full({x.size(0) * 2, x.size(1) * 3}, NAN, x.options());
    at::Tensor inside = wide.slice(0, 0, c10::nullopt, 2).slice(1, 0, c10::nullopt, 3);
    inside.copy_(x);
    return inside;
}

TEST_P(LinearTest, OddSizesInEveryLayout) {
    for (int64_t i = 1; i <= 70; ++i) {
        const Sizes sizes{i, 1 + (i * 29) % 70, 1 + (i * 43) % 70};
        const Case c = make(sizes);
        const auto layout = static_cast<int>(i % 9);
        const at::Tensor x = laid_out(c.x, layout / 3), weight = laid_out(c.weight, layout % 3),
                         dy = laid_out(c.dy, (layout + 1) % 3);
        EXPECT_TRUE(right(linear(x, weight), c.oracle.value)) << i;
        EXPECT_TRUE(right(linear_input_gradient(dy, weight), c.oracle.gradients[0])) << i;
        at::Tensor sum = laid_out(normal(weight.sizes(), /*scale=*/100), layout % 3);
        linear_weight_gradient(sum, dy, x, /*accumulate=*/false);
        EXPECT_TRUE(right(sum, c.oracle.gradients[1])) << i;
    }
}

/// The distance from each number to the middle between it and the next one of its type.
at::Tensor half_units(const at::Tensor& numbers, at::ScalarType type) {
    const int bits = type == at::kBFloat16 ? 8 : type == at::kFloat ? 24 : 53;
    const at::Tensor exponents = std::get<1>(at::frexp(numbers));
    return at::ldexp(at::ones_like(numbers), exponents - bits - 1);
}

/// `out` is factor a b + addend_factor addend, rounded once; LibTorch's own operations may round twice.
::testing::AssertionResult rounded_once(const at::Tensor& out, double factor, const at::Tensor& a,
                                        const at::Tensor& b, double addend_factor, const at::Tensor& addend) {
    const auto wide = [](const at::Tensor& x) { return x.cpu().to(at::kDouble); };
    const at::Tensor expected = factor * wide(a).mm(wide(b)) + addend_factor * wide(addend);
    const at::Tensor size =
        (factor * wide(a).abs().mm(wide(b).abs())).abs() + (addend_factor * wide(addend)).abs();
    const double unit = std::ldexp(1, out.scalar_type() == at::kDouble ? -53 : -24);
    const at::Tensor allowed =
        half_units(expected, out.scalar_type()) + static_cast<double>(a.size(1) + 4) * unit * size;
    const at::Tensor excess = (wide(out) - expected).abs() - allowed;
    if (excess.numel() == 0 || excess.max().item<double>() <= 0) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure()
           << "an element is " << excess.max().item<double>() << " too far away";
}

TEST_P(LinearTest, AScaledProductAndItsAddendAreRoundedOnce) {
    constexpr double kFactor = 2.0315, kAddendFactor = -4.775;
    for (int64_t i = 1; i <= 70; i += 3) {
        const int64_t rows = i, k = 1 + (i * 29) % 70, columns = 1 + (i * 43) % 70;
        const at::Tensor a = laid_out(normal({rows, k}), static_cast<int>(i % 9 / 3)),
                         b = laid_out(normal({k, columns}), static_cast<int>(i % 3)),
                         addend = normal({rows, columns}), out = at::full_like(addend, NAN);
        write_scaled_product(out, kFactor, a, b, kAddendFactor, addend);
        const at::Tensor strided = at::full_like(addend, NAN), in_place = addend.clone();
        write_scaled_product(strided, kFactor, a, b, kAddendFactor, laid_out(addend, 1));
        write_scaled_product(in_place, kFactor, a, b, kAddendFactor, in_place);
        EXPECT_TRUE(identical(strided, out));
        EXPECT_TRUE(identical(in_place, out));
        const at::Tensor alone = at::full_like(addend, NAN), nothing = at::full_like(addend, NAN);
        write_scaled_product(alone, kFactor, a, b);
        EXPECT_TRUE(right(alone, kFactor * a.to(at::kDouble).mm(b.to(at::kDouble))));
        write_scaled_product(nothing, kFactor, a, b, 0, nothing.clone());
        EXPECT_TRUE(identical(nothing, alone)) << "an addend with factor 0 is read";
        if (GetParam().path == Path::Plain && GetParam().type == at::kBFloat16) continue;
        EXPECT_TRUE(rounded_once(out, kFactor, a, b, kAddendFactor, addend)) << i;
        EXPECT_TRUE(rounded_once(alone, kFactor, a, b, 0, addend)) << i;
    }
}

TEST_P(LinearTest, AScaledProductWithFactorsOfOneIsTheProduct) {
    if (!uses_kernels(GetParam())) return;
    const Case c = make({301, 1100, 65});
    const at::Tensor out = at::empty_like(c.dy);
    write_scaled_product(out, 1, c.x, c.weight.t());
    EXPECT_TRUE(identical(out, linear(c.x, c.weight)));
    write_scaled_product(out, 1, c.x, c.weight.t(), 1, c.dy);
    EXPECT_TRUE(identical(out, add_linear(c.dy, c.x, c.weight)));
}

TEST_P(LinearTest, AScaledProductOfNothingIsTheScaledAddend) {
    for (const auto& [rows, k, columns] : {Sizes{4, 0, 5}, Sizes{0, 3, 5}, Sizes{4, 3, 0}, Sizes{0, 0, 0}}) {
        const at::Tensor a = normal({rows, k}), b = normal({k, columns}), addend = normal({rows, columns});
        const at::Tensor out = at::full_like(addend, NAN), alone = at::full_like(addend, NAN);
        write_scaled_product(out, 3, a, b, -2, addend);
        write_scaled_product(alone, 3, a, b);
        EXPECT_TRUE(identical(out, -2 * addend));
        EXPECT_TRUE((alone == 0).all().item<bool>());
    }
}

TEST_P(LinearTest, SizesBeyondTheBlocksOfAKernel) {
    for (const Sizes& sizes : {Sizes{801, 530, 33}, Sizes{40, 1100, 530}, Sizes{1100, 40, 530},
                               Sizes{301, 576, 65}, Sizes{40, 2048, 33}}) {
        const Case c = make(sizes);
        EXPECT_TRUE(right(linear(c.x, c.weight), c.oracle.value));
        EXPECT_TRUE(right(linear_input_gradient(c.dy, c.weight), c.oracle.gradients[0]));
        at::Tensor sum = normal(c.weight.sizes());
        linear_weight_gradient(sum, c.dy, c.x, /*accumulate=*/false);
        EXPECT_TRUE(right(sum, c.oracle.gradients[1]));
    }
}

TEST_P(LinearTest, NonfiniteNumbersStayInTheirRowAndColumn) {
    const double inf = std::numeric_limits<double>::infinity();
    for (const Sizes& sizes : {Sizes{7, 13, 5}, Sizes{33, 65, 129}}) {
        Case c = make(sizes);
        const at::Tensor clean = linear(c.x, c.weight);
        c.x[3][1] = NAN;
        c.x[5][0] = inf;
        c.weight[2][4] = -inf;
        const at::Tensor y = linear(c.x, c.weight), finite = y.isfinite();
        EXPECT_TRUE(y[3].isnan().all().item<bool>());
        EXPECT_FALSE(finite[5].any().item<bool>());
        EXPECT_FALSE(finite.select(1, 2).any().item<bool>());
        EXPECT_TRUE(identical(at::where(finite, y, clean), clean));
        EXPECT_EQ(finite.sum().item<int64_t>(), (sizes.tokens - 2) * (sizes.out - 1));
    }
}

TEST_P(LinearTest, ASumInFloatIsNotRoundedToTheOperandsType) {
    if (!uses_kernels(GetParam())) return;  // the plain composition rounds the product first
    const Case c = make({600, 65, 129});
    at::Tensor sum = random_.normal(c.weight.sizes(), at::kFloat);
    const at::Tensor expected = sum.to(at::kDouble) + c.oracle.gradients[1];
    linear_weight_gradient(sum, c.dy, c.x, /*accumulate=*/true);
    EXPECT_TRUE(close(sum, expected, 1e-5));
}

TEST_P(LinearTest, APartIsTheSameBitForBitAlone) {
    if (!uses_kernels(GetParam())) return;  // LibTorch does not guarantee it
    const Case c = make({301, 530, 270});
    const at::Tensor y = linear(c.x, c.weight), dx = linear_input_gradient(c.dy, c.weight);
    for (const auto& [begin, count] : {std::pair{0, 1}, {5, 100}, {300, 1}}) {
        const at::Tensor x = c.x.narrow(0, begin, count), dy = c.dy.narrow(0, begin, count);
        EXPECT_TRUE(identical(linear(x, c.weight), y.narrow(0, begin, count)));
        EXPECT_TRUE(identical(linear_input_gradient(dy, c.weight), dx.narrow(0, begin, count)));
        const at::Tensor weight = c.weight.narrow(0, begin % 200, count % 70);
        EXPECT_TRUE(identical(linear(c.x, weight), y.narrow(1, begin % 200, count % 70)));
    }
}

TEST_P(LinearTest, ThreadsDoNotChangeABit) {
    if (!uses_kernels(GetParam())) return;  // LibTorch does not guarantee it
    for (const Sizes& sizes : {Sizes{301, 530, 65}, Sizes{65, 270, 530}}) {
        const Case c = make(sizes);
        at::Tensor sums[2];
        at::Tensor ys[2], scaled[2];
        for (int i = 0; i < 2; ++i) {
            at::set_num_threads(i == 0 ? 1 : 3);
            ys[i] = linear(c.x, c.weight);
            sums[i] = at::zeros(c.weight.sizes(), placed(at::kFloat));
            linear_weight_gradient(sums[i], c.dy, c.x, /*accumulate=*/true);
            scaled[i] = at::empty_like(c.dy);
            write_scaled_product(scaled[i], 3, c.x, c.weight.t(), -2, c.dy);
        }
        at::set_num_threads(1);
        EXPECT_TRUE(identical(ys[0], ys[1]));
        EXPECT_TRUE(identical(scaled[0], scaled[1]));
        EXPECT_TRUE(rounded_once(scaled[0], 3, c.x, c.weight.t(), -2, c.dy));
        EXPECT_TRUE(identical(sums[0], sums[1]));
    }
}

ARGOSY_FOR_EACH_VARIANT(LinearTest);

}  // namespace
}  // namespace argosy::ops
