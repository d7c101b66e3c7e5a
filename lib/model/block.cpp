#include "model/block.h"

#include <ATen/TensorOperators.h>

#include <array>
#include <utility>

#include "ops/rms_norm.h"
#include "ops/swiglu.h"

namespace argosy::model {

using Column = TensorAxis::Column;

Block::Block(const ModelSpec& spec, const TensorAxis& axis, const Attention& attention,
             const ops::RopeTable& rope)
    : spec_(spec), axis_(axis), attention_(attention), rope_(rope) {}

ops::AttentionShape Block::attention_shape(const Batch& batch) const {
    return {batch.num_sequences, batch.seq_len, spec_.head_dim};
}

at::Tensor Block::forward(const Weights& weights, const at::Tensor& x, const Batch& batch, Keep keep,
                          Tape& tape) const {
    tape.input = x;
    fill_attention(weights, batch, tape);
    fill_feed_forward(weights, tape);
    at::Tensor y = axis_.row(tape.activation, weights[Role::Down]).add_(tape.middle);
    tape.drop(keep);
    return y;
}

void Block::recompute(const Weights& weights, const Batch& batch, Tape& tape) const {
    fill_attention(weights, batch, tape);
    fill_feed_forward(weights, tape);
}

void Block::fill_attention(const Weights& weights, const Batch& batch, Tape& tape) const {
    if (!tape.attention_norm.y.defined()) {
        tape.attention_norm = ops::rms_norm(tape.input, weights[Role::AttentionNorm], spec_.norm_eps);
    }
    if (!tape.v.defined()) {
        // Biases are undefined in a model that has none.
        auto products =
            axis_.column(tape.attention_norm.y, std::array{Column{weights[Role::Wq], weights[Role::BiasQ]},
                                                           Column{weights[Role::Wk], weights[Role::BiasK]},
                                                           Column{weights[Role::Wv], weights[Role::BiasV]}});
        tape.q_product = products[0];
        tape.k_product = products[1];
        tape.v = products[2];
    }
    if (!tape.q.defined()) fill_queries_and_keys(weights, tape);
    if (!tape.attention.y.defined()) {
        tape.attention = attention_.forward(tape.q, tape.k, tape.v, attention_shape(batch));
    }
    if (!tape.middle.defined()) {
        auto [sum, norm] = ops::add_rms_norm(tape.input, axis_.row(tape.attention.y, weights[Role::Wo]),
                                             weights[Role::FfnNorm], spec_.norm_eps);
        tape.middle = std::move(sum);
        tape.feed_forward_norm = std::move(norm);
    }
}

/// Norm and rotation; the products before them are kept only where the norm's backward needs them.
void Block::fill_queries_and_keys(const Weights& weights, Tape& tape) const {
    if (!spec_.qk_norm) {
        tape.q = ops::rope(std::exchange(tape.q_product, {}), rope_);
        tape.k = ops::rope(std::exchange(tape.k_product, {}), rope_);
        return;
    }
    const auto heads = [&](const at::Tensor& x) { return x.view({-1, spec_.head_dim}); };
    tape.q_norm = ops::rms_norm(heads(tape.q_product), weights[Role::QNorm], spec_.norm_eps);
    tape.k_norm = ops::rms_norm(heads(tape.k_product), weights[Role::KNorm], spec_.norm_eps);
    // Views that alone hold their memory may be rotated where they lie.
    const auto of_tokens = [](at::Tensor& x, const at::Tensor& like) {
        at::Tensor view = x.view(like.sizes());
        x.reset();
        return view;
    };
    tape.q = ops::rope(of_tokens(tape.q_norm.y, tape.q_product), rope_);
    tape.k = ops::rope(of_tokens(tape.k_norm.y, tape.k_product), rope_);
}

void Block::fill_feed_forward(const Weights& weights, Tape& tape) const {
    if (!tape.feed_forward_norm.y.defined()) {
        tape.feed_forward_norm = ops::rms_norm(tape.middle, weights[Role::FfnNorm], spec_.norm_eps);
    }
    if (!tape.gate.defined()) {
        auto products = axis_.column(tape.feed_forward_norm.y,
                                     std::array{Column{weights[Role::Gate]}, Column{weights[Role::Up]}});
        tape.gate = products[0];
        tape.up = products[1];
    }
    if (!tape.activation.defined()) tape.activation = ops::swiglu(tape.gate, tape.up);
}

/// The stream passes each half by: its gradient joins inside the backward of the half's norm.
at::Tensor Block::backward_input(const Weights& weights, const at::Tensor& dy, const Batch& batch, Tape& tape,
                                 WeightWork& work) const {
    const at::Tensor dmiddle = feed_forward_backward(weights, dy, tape, work);
    at::Tensor dx = attention_backward(weights, dmiddle, batch, tape, work);
    tape = {};
    return dx;
}

at::Tensor Block::feed_forward_backward(const Weights& weights, const at::Tensor& dy, Tape& tape,
                                        WeightWork& work) const {
    auto [dactivation, dy_all] = axis_.row_backward(dy, weights[Role::Down]);
    work.add_product(Role::Down, dy_all, std::move(tape.activation));

    auto [dgate, dup] = ops::swiglu_backward(dactivation, tape.gate, tape.up);
    auto [dinput, input_all] = axis_.column_backward(tape.feed_forward_norm.y, std::array{dgate, dup},
                                                     std::array{weights[Role::Gate], weights[Role::Up]});
    work.add_product(Role::Gate, dgate, input_all);
    work.add_product(Role::Up, dup, input_all);

    auto [dmiddle, dnorm] = ops::rms_norm_backward(dinput, tape.middle, weights[Role::FfnNorm],
                                                   tape.feed_forward_norm.inverse_rms, dy);
    work.add_value(Role::FfnNorm, dnorm);
    return dmiddle;
}

at::Tensor Block::attention_backward(const Weights& weights, const at::Tensor& dy, const Batch& batch,
                                     Tape& tape, WeightWork& work) const {
    auto [doutput, dy_all] = axis_.row_backward(dy, weights[Role::Wo]);
    work.add_product(Role::Wo, dy_all, tape.attention.y);

    auto [dq, dk, dv] =
        attention_.backward(doutput, tape.q, tape.k, tape.v, tape.attention, attention_shape(batch));
    dq = ops::rope_backward(std::move(dq), rope_);
    dk = ops::rope_backward(std::move(dk), rope_);
    if (spec_.qk_norm) {
        dq = head_norm_backward(weights, Role::QNorm, dq, tape.q_product, tape.q_norm.inverse_rms, work);
        dk = head_norm_backward(weights, Role::KNorm, dk, tape.k_product, tape.k_norm.inverse_rms, work);
    }
    if (spec_.qkv_bias) {
        work.add_row_sum(Role::BiasQ, dq);
        work.add_row_sum(Role::BiasK, dk);
        work.add_row_sum(Role::BiasV, dv);
    }

    auto [dinput, input_all] =
        axis_.column_backward(tape.attention_norm.y, std::array{dq, dk, dv},
                              std::array{weights[Role::Wq], weights[Role::Wk], weights[Role::Wv]});
    work.add_product(Role::Wq, dq, input_all);
    work.add_product(Role::Wk, dk, input_all);
    work.add_product(Role::Wv, dv, input_all);

    auto [dx, dnorm] = ops::rms_norm_backward(dinput, tape.input, weights[Role::AttentionNorm],
                                              tape.attention_norm.inverse_rms, dy);
    work.add_value(Role::AttentionNorm, dnorm);
    return dx;
}

at::Tensor Block::head_norm_backward(const Weights& weights, Role role, const at::Tensor& dy,
                                     const at::Tensor& x, const at::Tensor& inverse_rms,
                                     WeightWork& work) const {
    auto [dx, dweight] = ops::rms_norm_backward(dy.view({-1, spec_.head_dim}), x.view({-1, spec_.head_dim}),
                                                weights[role], inverse_rms);
    work.add_value(role, dweight);
    return dx.view(x.sizes());
}

}  // namespace argosy::model
