#include "ops/glu.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/silu.h>

#include "ops/numerics.h"
#include "ops/ops_test.h"

namespace argosy::ops {
namespace {

constexpr Activation kActivations[] = {Activation::Silu, Activation::GeluTanh};

class GluTest : public OpsTest {};

auto formula_of(Activation activation) {
    return [activation](const std::vector<at::Tensor>& in) {
        const std::vector<at::Tensor> halves = in[0].chunk(2, /*dim=*/1);
        return (activation == Activation::Silu ? at::silu(halves[0]) : at::gelu(halves[0], "tanh")) *
               halves[1];
    };
}

TEST_P(GluTest, MatchesTheFormula) {
    for (const Activation activation : kActivations) {
        for (const auto& [rows, size] : {std::pair{1, 1}, {0, 5}, {7, 13}, {31, 129}}) {
            const at::Tensor gate_up = normal({rows, 2 * size}, 2), dy = normal({rows, size});
            const Differentiated oracle = differentiate(formula_of(activation), {gate_up}, dy);
            EXPECT_TRUE(right(glu(gate_up, activation), oracle.value)) << rows << " x " << size;
            EXPECT_TRUE(right(glu_backward(dy, gate_up, activation), oracle.gradients[0]))
                << rows << " x " << size;
        }
    }
}

TEST_P(GluTest, StridedRows) {
    const at::Tensor wide = normal({5, 41}), dy = normal({19, 5}).t();
    const at::Tensor gate_up = wide.narrow(1, 2, 38), dense = gate_up.contiguous();
    for (const Activation activation : kActivations) {
        EXPECT_TRUE(identical(glu(gate_up, activation), glu(dense, activation)));
        EXPECT_TRUE(identical(glu_backward(dy, gate_up, activation),
                              glu_backward(dy.contiguous(), dense, activation)));
    }
}

TEST_P(GluTest, FarGatesDoNotOverflow) {
    const at::Tensor gate = normal({4, 8}, 1e4), up = normal({4, 8}), dy = normal({4, 8});
    const at::Tensor gate_up = at::cat({gate, up}, /*dim=*/1);
    // Far from 0 the gate is fully open or fully closed.
    const at::Tensor open = gate.to(at::kDouble).clamp_min(0);
    for (const Activation activation : kActivations) {
        const at::Tensor dgate_up = glu_backward(dy, gate_up, activation);
        EXPECT_TRUE(right(glu(gate_up, activation), open * up.to(at::kDouble)));
        EXPECT_TRUE(right(dgate_up.narrow(1, 8, 8), open * dy.to(at::kDouble)));
        EXPECT_TRUE(right(dgate_up.narrow(1, 0, 8), open.sign() * up.to(at::kDouble) * dy.to(at::kDouble)));
    }
}

TEST_P(GluTest, RowsWithWeightsMatchTheFormula) {
    const auto wide = accumulation_type(GetParam().type);
    for (const Activation activation : kActivations) {
        for (const auto& [rows, size] : {std::pair{1, 1}, {0, 5}, {7, 13}, {31, 129}}) {
            const at::Tensor gate_up = normal({rows, 2 * size}, 2), dy = normal({rows, size}),
                             weights = random_.normal({rows}, wide);
            const auto formula = [&](const auto& in) {
                return formula_of(activation)(in) * in[1].unsqueeze(1);
            };
            const Differentiated oracle = differentiate(formula, {gate_up, weights}, dy);
            EXPECT_TRUE(right(weighted_glu(gate_up, weights, activation), oracle.value));
            const auto [dgate_up, dweights] = weighted_glu_backward(dy, gate_up, weights, activation);
            EXPECT_TRUE(right(dgate_up, oracle.gradients[0])) << rows << " x " << size;
            EXPECT_EQ(dweights.scalar_type(), wide);
            EXPECT_TRUE(close(dweights, oracle.gradients[1], wide == at::kDouble ? 1e-12 : 1e-5));
        }
    }
}

ARGOSY_FOR_EACH_VARIANT(GluTest);

}  // namespace
}  // namespace argosy::ops
