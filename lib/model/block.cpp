#include "model/block.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include <utility>

#include "ops/rms_norm.h"
#include "ops/swiglu.h"

namespace argosy::model {

namespace {

struct Qkv {
    at::Tensor q, k, v, qk;  // qk: both, which are neighbours
};

/// Columns of what lies as the products do.
Qkv columns_of(const at::Tensor& qkv, const Weights& weights) {
    const int64_t q = weights[Role::Wq].size(0), k = weights[Role::Wk].size(0);
    return {qkv.narrow(1, 0, q), qkv.narrow(1, q, k), qkv.narrow(1, q + k, k), qkv.narrow(1, 0, q + k)};
}

}  // namespace

Block::Block(const ModelSpec& spec, const TensorAxis& axis, const Attention& attention,
             const ops::RopeTable& rope)
    : spec_(spec), axis_(axis), attention_(attention), rope_(rope) {}

/// Each head a row of its own.
at::Tensor Block::heads_of(const at::Tensor& x) const { return x.view({x.size(0), -1, spec_.head_dim}); }

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
        tape.qkv =
            axis_.column(tape.attention_norm.y, weights.stack(Join::Qkv), weights.stack(Join::QkvBias));
        tape.v = columns_of(tape.qkv, weights).v;
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

/// Norm and rotation; the products before them stay where the norm's backward needs them.
void Block::fill_queries_and_keys(const Weights& weights, Tape& tape) const {
    const Qkv products = columns_of(tape.qkv, weights);
    if (!spec_.qk_norm) {
        ops::write_rope(products.qk, products.qk, rope_);
        tape.q = products.q;
        tape.k = products.k;
        return;
    }
    tape.q_norm = ops::rms_norm(heads_of(products.q), weights[Role::QNorm], spec_.norm_eps);
    tape.k_norm = ops::rms_norm(heads_of(products.k), weights[Role::KNorm], spec_.norm_eps);
    tape.q = std::exchange(tape.q_norm.y, {}).view(products.q.sizes());
    tape.k = std::exchange(tape.k_norm.y, {}).view(products.k.sizes());
    ops::write_rope(tape.q, tape.q, rope_);
    ops::write_rope(tape.k, tape.k, rope_);
}

void Block::fill_feed_forward(const Weights& weights, Tape& tape) const {
    if (!tape.feed_forward_norm.y.defined()) {
        tape.feed_forward_norm = ops::rms_norm(tape.middle, weights[Role::FfnNorm], spec_.norm_eps);
    }
    if (!tape.gate_up.defined()) {
        tape.gate_up = axis_.column(tape.feed_forward_norm.y, weights.stack(Join::GateUp), {});
    }
    if (!tape.activation.defined()) tape.activation = ops::swiglu(tape.gate_up);
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

    const at::Tensor dgate_up = ops::swiglu_backward(dactivation, tape.gate_up);
    auto [dinput, input_all] =
        axis_.column_backward(tape.feed_forward_norm.y, dgate_up, weights.stack(Join::GateUp));
    work.add_product(Join::GateUp, dgate_up, input_all);

    auto [dmiddle, dnorm] = ops::rms_norm_backward(dinput, tape.middle, weights[Role::FfnNorm],
                                                   tape.feed_forward_norm.inverse_rms, dy);
    work.add_value(Role::FfnNorm, dnorm);
    return dmiddle;
}

at::Tensor Block::attention_backward(const Weights& weights, const at::Tensor& dy, const Batch& batch,
                                     Tape& tape, WeightWork& work) const {
    auto [doutput, dy_all] = axis_.row_backward(dy, weights[Role::Wo]);
    work.add_product(Role::Wo, dy_all, tape.attention.y);

    const at::Tensor dqkv = qkv_gradient(weights, std::move(doutput), batch, tape, work);
    if (spec_.qkv_bias) work.add_row_sum(Join::QkvBias, dqkv);

    auto [dinput, input_all] = axis_.column_backward(tape.attention_norm.y, dqkv, weights.stack(Join::Qkv));
    work.add_product(Join::Qkv, dqkv, input_all);

    auto [dx, dnorm] = ops::rms_norm_backward(dinput, tape.input, weights[Role::AttentionNorm],
                                              tape.attention_norm.inverse_rms, dy);
    work.add_value(Role::AttentionNorm, dnorm);
    return dx;
}

/// Of the products, laid out as they are. Memory that is no longer needed goes before more is taken.
at::Tensor Block::qkv_gradient(const Weights& weights, at::Tensor doutput, const Batch& batch, Tape& tape,
                               WeightWork& work) const {
    auto [dq, dk, dv] =
        attention_.backward(doutput, tape.q, tape.k, tape.v, tape.attention, attention_shape(batch));
    doutput.reset();
    for (at::Tensor* x : {&tape.q, &tape.k, &tape.v}) x->reset();
    if (!spec_.qk_norm) tape.qkv.reset();

    at::Tensor dqkv = at::empty({dq.size(0), dq.size(1) + dk.size(1) + dv.size(1)}, dq.options());
    const Qkv gradients = columns_of(dqkv, weights);
    gradients.v.copy_(dv);
    if (!spec_.qk_norm) {
        ops::write_rope_backward(gradients.q, dq, rope_);
        ops::write_rope_backward(gradients.k, dk, rope_);
        return dqkv;
    }
    const Qkv products = columns_of(tape.qkv, weights);
    ops::write_rope_backward(dq, dq, rope_);
    ops::write_rope_backward(dk, dk, rope_);
    work.add_value(Role::QNorm,
                   ops::write_rms_norm_backward(heads_of(gradients.q), heads_of(dq), heads_of(products.q),
                                                weights[Role::QNorm], tape.q_norm.inverse_rms));
    work.add_value(Role::KNorm,
                   ops::write_rms_norm_backward(heads_of(gradients.k), heads_of(dk), heads_of(products.k),
                                                weights[Role::KNorm], tape.k_norm.inverse_rms));
    return dqkv;
}

}  // namespace argosy::model
