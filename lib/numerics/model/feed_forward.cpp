#include "model/feed_forward.h"

#include <utility>

#include "ops/glu.h"

namespace argosy::model {

using ops::SumOver;

void FeedForwardTape::drop(RecomputeMode mode) { drop_casts({&input, &activation}, mode); }

void FeedForwardPlaces::declare_matrices(const ModelSpec& spec, int64_t layer, Unit& unit) {
    const double deviation = residual_deviation(layer);
    // The name of Hugging Face's norm depends on whether there is another one.
    const bool both = spec.norms == NormPlace::Both;
    norms.declare_before(spec, both ? "ffn_pre_norm.weight" : "ffn_norm.weight", unit);
    gate_up = unit.add(
        {projection("feed_forward.w1.weight", spec.hidden_dim, spec.dim, kOutputs, kDefaultDeviation),
         projection("feed_forward.w3.weight", spec.hidden_dim, spec.dim, kOutputs, deviation)},
        "w1, w3");
    down =
        unit.add({projection("feed_forward.w2.weight", spec.dim, spec.hidden_dim, kInputs, deviation)}, "w2");
    norms.declare_after(spec, "ffn_post_norm.weight", unit);
}

void FeedForwardPlaces::declare_vectors(const ModelSpec& spec, Unit& unit) {
    if (!spec.mlp_bias) return;
    gate_up_bias = unit.add({cut_vector("feed_forward.w1.bias", spec.hidden_dim, 0),
                             cut_vector("feed_forward.w3.bias", spec.hidden_dim, 0)},
                            gate_up.layers);
    down_bias = unit.add({vector("feed_forward.w2.bias", spec.dim, 0)}, down.layers);
}

void FeedForward::fill(const Weights& weights, const at::Tensor& x, SumOver summed, SumOver activation_summed,
                       FeedForwardTape& tape) const {
    // 1. normalise, if there is a norm before: input [rows, dim]
    norms_.fill(weights, x, weights.recipe(places_.gate_up), summed, tape);
    // 2. project to gate and up: gate_up [tokens, 2 hidden]
    if (!tape.gate_up.defined()) {
        tape.gate_up =
            axis_.column(tape.input, weights.stack(places_.gate_up), weights.stack(places_.gate_up_bias));
    }
    // 3. act(gate) * up: activation [tokens, hidden]
    if (!tape.activation.defined()) {
        const ops::Recipe& recipe = weights.recipe(places_.down);
        at::Tensor largest;
        const at::Tensor y = ops::glu(tape.gate_up, activation_, recipe.shares_x() ? &largest : nullptr);
        tape.activation = axis_.cast_if_shared(y, recipe, TensorAxis::Rows::All, activation_summed, largest);
    }
}

at::Tensor FeedForward::add_to(const at::Tensor& x, const Weights& weights, FeedForwardTape& tape) const {
    return norms_.add_to(x, weights, tape.activation, places_.down, places_.down_bias, tape);
}

at::Tensor FeedForward::backward_input(const Weights& weights, const at::Tensor& dy, const at::Tensor& x,
                                       FeedForwardTape& tape, WeightWork& work) const {
    // 1. norm after and down projection: dadded [rows, dim], dactivation [tokens, hidden]
    const at::Tensor dadded = norms_.gradient_of_added(weights, dy, tape, work);
    const ops::Stack down = weights.stack(places_.down);
    auto [dactivation, dadded_all] = axis_.row_backward(dadded, down);
    work.add_product(places_.down, dadded_all, std::move(tape.activation), *down.recipe);
    if (places_.down_bias) work.add_row_sum(places_.down_bias, dadded);
    // 2. act(gate) * up: dgate_up [tokens, 2 hidden]
    const ops::Stack gate_up = weights.stack(places_.gate_up);
    at::Tensor largest;
    const at::Tensor dgate_up = ops::glu_backward(dactivation, tape.gate_up, activation_,
                                                  gate_up.recipe->shares_dy() ? &largest : nullptr);
    // 3. gate and up projections: dinput [rows, dim]
    const auto [dinput, dgate_up_operand] = axis_.column_backward(dgate_up, largest, gate_up);
    work.add_product(places_.gate_up, dgate_up_operand, tape.input, *gate_up.recipe, axis_);
    if (places_.gate_up_bias) work.add_row_sum(places_.gate_up_bias, dgate_up);
    // 4. norm before, plus the gradient of the bypass: dx [rows, dim]
    return norms_.gradient_of_x(weights, dinput, dy, x, tape, work);
}

}  // namespace argosy::model
