#include "ops/swiglu.h"

#include <ATen/ops/cat.h>

#include "ops/ops_test.h"

namespace argosy::ops {
namespace {

class SwigluTest : public OpsTest {};

at::Tensor formula(const std::vector<at::Tensor>& in) {
    const std::vector<at::Tensor> halves = in[0].chunk(2, /*dim=*/1);
    return halves[0] / (1 + (-halves[0]).exp()) * halves[1];
}

TEST_P(SwigluTest, MatchesTheFormula) {
    for (const auto& [rows, size] : {std::pair{1, 1}, {0, 5}, {7, 13}, {31, 129}}) {
        const at::Tensor gate_up = normal({rows, 2 * size}, 2), dy = normal({rows, size});
        const Differentiated oracle = differentiate(formula, {gate_up}, dy);
        EXPECT_TRUE(right(swiglu(gate_up), oracle.value)) << rows << " x " << size;
        EXPECT_TRUE(right(swiglu_backward(dy, gate_up), oracle.gradients[0])) << rows << " x " << size;
    }
}

TEST_P(SwigluTest, StridedRows) {
    const at::Tensor wide = normal({5, 41}), dy = normal({19, 5}).t();
    const at::Tensor gate_up = wide.narrow(1, 2, 38);
    EXPECT_TRUE(identical(swiglu(gate_up), swiglu(gate_up.contiguous())));
    EXPECT_TRUE(
        identical(swiglu_backward(dy, gate_up), swiglu_backward(dy.contiguous(), gate_up.contiguous())));
}

TEST_P(SwigluTest, FarGatesDoNotOverflow) {
    const at::Tensor gate = normal({4, 8}, 1e4), up = normal({4, 8}), dy = normal({4, 8});
    const at::Tensor gate_up = at::cat({gate, up}, /*dim=*/1), dgate_up = swiglu_backward(dy, gate_up);
    // Far from 0 the gate is fully open or fully closed.
    const at::Tensor open = gate.to(at::kDouble).clamp_min(0);
    EXPECT_TRUE(right(swiglu(gate_up), open * up.to(at::kDouble)));
    EXPECT_TRUE(right(dgate_up.narrow(1, 8, 8), open * dy.to(at::kDouble)));
    EXPECT_TRUE(right(dgate_up.narrow(1, 0, 8), open.sign() * up.to(at::kDouble) * dy.to(at::kDouble)));
}

ARGOSY_FOR_EACH_VARIANT(SwigluTest);

}  // namespace
}  // namespace argosy::ops
