#include "ops/swiglu.h"

#include "ops/ops_test.h"

namespace argosy::ops {
namespace {

class SwigluTest : public OpsTest {};

at::Tensor formula(const std::vector<at::Tensor>& in) { return in[0] / (1 + (-in[0]).exp()) * in[1]; }

TEST_P(SwigluTest, MatchesTheFormula) {
    for (const auto& shape : {std::vector<int64_t>{1, 1}, {0, 5}, {7, 13}, {31, 129}}) {
        const at::Tensor gate = normal(shape, 3), up = normal(shape), dy = normal(shape);
        const Differentiated oracle = differentiate(formula, {gate, up}, dy);
        EXPECT_TRUE(right(swiglu(gate, up), oracle.value)) << shape;
        const auto [dgate, dup] = swiglu_backward(dy, gate, up);
        EXPECT_TRUE(right(dgate, oracle.gradients[0])) << shape;
        EXPECT_TRUE(right(dup, oracle.gradients[1])) << shape;
    }
}

TEST_P(SwigluTest, StridedRows) {
    const at::Tensor both = normal({5, 40}), dy = normal({19, 5}).t();
    const at::Tensor gate = both.narrow(1, 0, 19), up = both.narrow(1, 19, 19);
    EXPECT_TRUE(right(swiglu(gate, up), swiglu(gate.contiguous(), up.contiguous())));
    const auto [dgate, dup] = swiglu_backward(dy, gate, up);
    const auto [same_dgate, same_dup] = swiglu_backward(dy.contiguous(), gate.contiguous(), up.contiguous());
    EXPECT_TRUE(right(dgate, same_dgate));
    EXPECT_TRUE(right(dup, same_dup));
}

TEST_P(SwigluTest, FarGatesDoNotOverflow) {
    const at::Tensor gate = normal({4, 8}, std::min(1e4, GetParam().huge / 64)), up = normal({4, 8}),
                     dy = normal({4, 8});
    const auto [dgate, dup] = swiglu_backward(dy, gate, up);
    // Far from 0 the gate is all open or all shut.
    const at::Tensor open = gate.to(at::kDouble).clamp_min(0);
    EXPECT_TRUE(right(swiglu(gate, up), open * up.to(at::kDouble)));
    EXPECT_TRUE(right(dup, open * dy.to(at::kDouble)));
    EXPECT_TRUE(right(dgate, open.sign() * up.to(at::kDouble) * dy.to(at::kDouble)));
}

ARGOSY_FOR_EACH_VARIANT(SwigluTest);

}  // namespace
}  // namespace argosy::ops
