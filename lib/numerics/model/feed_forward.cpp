#include "model/feed_forward.h"

#include <tuple>
#include <utility>

#include "ops/glu.h"
#include "ops/rms_norm.h"

namespace argosy::model {

using ops::SumOver;

void FeedForwardTape::drop(RecomputeMode mode) { drop_casts({&input, &activation}, mode); }

void FeedForwardPlaces::declare_matrices(const ModelSpec& spec, int64_t layer, Unit& unit) {
    const double deviation = residual_deviation(layer);
    norm = unit.add({vector("ffn_norm.weight", spec.dim, 1)});
    gate_up = unit.add(
        {projection("feed_forward.w1.weight", spec.hidden_dim, spec.dim, kOutputs, kDefaultDeviation),
         projection("feed_forward.w3.weight", spec.hidden_dim, spec.dim, kOutputs, deviation)},
        "w1, w3");
    down =
        unit.add({projection("feed_forward.w2.weight", spec.dim, spec.hidden_dim, kInputs, deviation)}, "w2");
}

void FeedForwardPlaces::declare_vectors(const ModelSpec& spec, Unit& unit) {
    if (!spec.mlp_bias) return;
    gate_up_bias = unit.add({cut_bias("feed_forward.w1.bias", spec.hidden_dim),
                             cut_bias("feed_forward.w3.bias", spec.hidden_dim)},
                            gate_up.layers);
    down_bias = unit.add({vector("feed_forward.w2.bias", spec.dim, 0)}, down.layers);
}

void FeedForward::fill(const Weights& weights, const at::Tensor& x, SumOver summed, SumOver activation_summed,
                       FeedForwardTape& tape) const {
    // 1. normalise: input [rows, dim]
    if (!tape.input.defined()) {
        std::tie(tape.input, tape.inverse_rms) =
            axis_.normed(x, {weights[places_.norm], spec_.norm_eps}, weights.recipe(places_.gate_up), summed);
    }
    // 2. project to gate and up: gate_up [tokens, 2 hidden]
    if (!tape.gate_up.defined()) {
        tape.gate_up =
            axis_.column(tape.input, weights.stack(places_.gate_up), weights.stack(places_.gate_up_bias));
    }
    // 3. silu(gate) * up: activation [tokens, hidden]
    if (!tape.activation.defined()) {
        const ops::Recipe& recipe = weights.recipe(places_.down);
        at::Tensor largest;
        const at::Tensor y =
            ops::glu(tape.gate_up, ops::Activation::Silu, recipe.shares_x() ? &largest : nullptr);
        tape.activation = axis_.cast_if_shared(y, recipe, TensorAxis::Rows::All, activation_summed, largest);
    }
}

at::Tensor FeedForward::add_to(const at::Tensor& x, const Weights& weights,
                               const FeedForwardTape& tape) const {
    return axis_.row(tape.activation, weights.stack(places_.down), weights[places_.down_bias], x);
}

at::Tensor FeedForward::backward_input(const Weights& weights, const at::Tensor& dy, const at::Tensor& x,
                                       FeedForwardTape& tape, WeightWork& work) const {
    // 1. down projection: dactivation [tokens, hidden], dy_all [tokens, dim]
    const ops::Stack down = weights.stack(places_.down);
    auto [dactivation, dy_all] = axis_.row_backward(dy, down);
    work.add_product(places_.down, dy_all, std::move(tape.activation), *down.recipe);
    if (places_.down_bias) work.add_row_sum(places_.down_bias, dy);
    // 2. silu(gate) * up: dgate_up [tokens, 2 hidden]
    const ops::Stack gate_up = weights.stack(places_.gate_up);
    at::Tensor largest;
    const at::Tensor dgate_up = ops::glu_backward(dactivation, tape.gate_up, ops::Activation::Silu,
                                                  gate_up.recipe->shares_dy() ? &largest : nullptr);
    // 3. gate and up projections: dinput [rows, dim]
    const auto [dinput, dgate_up_operand] = axis_.column_backward(dgate_up, largest, gate_up);
    work.add_product(places_.gate_up, dgate_up_operand, tape.input, *gate_up.recipe, axis_);
    if (places_.gate_up_bias) work.add_row_sum(places_.gate_up_bias, dgate_up);
    // 4. norm, plus the gradient of the bypass: dx [rows, dim]
    auto [dx, dnorm] =
        ops::rms_norm_backward(dinput, x, {weights[places_.norm], spec_.norm_eps}, tape.inverse_rms, dy);
    work.add_value(places_.norm, dnorm);
    return dx;
}

}  // namespace argosy::model
