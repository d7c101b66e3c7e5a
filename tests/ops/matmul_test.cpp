#include "ops/matmul.h"

#include <ATen/ops/zeros_like.h>

#include "ops/ops_test.h"

namespace argosy::ops {
namespace {

struct Sizes {
    int64_t tokens, in, out;
};
constexpr Sizes kSizes[] = {{1, 1, 1}, {7, 13, 5}, {2, 127, 1}, {33, 65, 129}, {64, 96, 32}};

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

TEST_P(LinearTest, InputGradientAddsToASum) {
    for (const Sizes& sizes : kSizes) {
        const Case c = make(sizes);
        at::Tensor sum = normal(c.x.sizes());
        const at::Tensor expected = sum.to(at::kDouble) + c.oracle.gradients[0];
        add_linear_input_gradient(sum, c.dy, c.weight);
        EXPECT_TRUE(right(sum, expected));
    }
}

TEST_P(LinearTest, WeightGradientIsWrittenOrAdded) {
    for (const Sizes& sizes : kSizes) {
        const Case c = make(sizes);
        at::Tensor sum = normal(c.weight.sizes(), /*scale=*/100);  // what is overwritten must not show
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

TEST_P(LinearTest, NoTokens) {
    const at::Tensor x = normal({0, 3}), weight = normal({5, 3}), dy = normal({0, 5});
    EXPECT_EQ(linear(x, weight).sizes(), (at::IntArrayRef{0, 5}));
    EXPECT_EQ(linear_input_gradient(dy, weight).sizes(), (at::IntArrayRef{0, 3}));
    at::Tensor sum = normal({5, 3});
    const at::Tensor before = sum.clone();
    linear_weight_gradient(sum, dy, x, /*accumulate=*/true);
    EXPECT_TRUE(identical(sum, before));
    linear_weight_gradient(sum, dy, x, /*accumulate=*/false);
    EXPECT_TRUE(identical(sum, at::zeros_like(sum)));
}

ARGOSY_FOR_EACH_VARIANT(LinearTest);

}  // namespace
}  // namespace argosy::ops
