#include "model/block.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include <tuple>
#include <utility>

#include "ops/rms_norm.h"
#include "ops/swiglu.h"

// Shapes: tokens is the number of tokens of the microbatch; rows is this rank's share of the tokens between
// blocks (sequence parallelism); heads, kv_heads and hidden are this rank's shares over the tensor axis. The
// fused projection qkv is [tokens, (heads + 2 kv_heads) * head_dim], with columns in the order q, k, v.
//
// TensorAxis::column takes [rows, ...] and returns [tokens, ...] (a gather). TensorAxis::row takes
// [tokens, ...] and returns [rows, ...] (a reduce-scatter).
namespace argosy::model {

using ops::SumOver;

namespace {

/// Views of the columns of qkv, or of its gradient.
struct Qkv {
    at::Tensor q;     // [tokens, heads * head_dim]
    at::Tensor k, v;  // [tokens, kv_heads * head_dim]
    at::Tensor qk;    // [tokens, (heads + kv_heads) * head_dim]: q and k together
};

Qkv split_qkv(const at::Tensor& qkv, const Weights& weights) {
    const int64_t q = weights[Role::Wq].size(0), k = weights[Role::Wk].size(0);
    return {qkv.narrow(1, 0, q), qkv.narrow(1, q, k), qkv.narrow(1, q + k, k), qkv.narrow(1, 0, q + k)};
}

}  // namespace

ops::RopeTable rope_table(const ModelSpec& spec, int64_t seq_len, const at::TensorOptions& options) {
    const double attention_factor = spec.rope_scaling ? spec.rope_scaling->attention_factor : 1;
    return ops::make_rope_table(rope_frequencies(spec), attention_factor, seq_len, options);
}

Block::Block(const ModelSpec& spec, const TensorAxis& axis, const ContextAxis& context,
             const ops::RopeTable& rope)
    : spec_(spec), axis_(axis), context_(context), rope_(rope) {}

/// The view [tokens, heads, head_dim] of x [tokens, heads * head_dim].
at::Tensor Block::heads_of(const at::Tensor& x) const { return x.view({x.size(0), -1, spec_.head_dim}); }

ops::AttentionShape Block::attention_shape(const Batch& batch) const {
    auto shape = ops::AttentionShape::of_whole_sequences(batch.num_sequences, batch.seq_len, spec_.head_dim,
                                                         spec_.sliding_window.value_or(ops::kNoWindow));
    shape.document_offsets = batch.document_offsets;
    return shape;
}

at::Tensor Block::forward(const Weights& weights, const at::Tensor& x, const Batch& batch, RecomputeMode mode,
                          Tape& tape) const {
    // A forward product sums over the columns of its input, a weight's gradient over the rows. If step 4
    // drops the inputs' casts, they need only serve the forward products: recompute() makes them again for
    // the weights' gradients.
    const auto summed = mode == RecomputeMode::None ? SumOver::Either : SumOver::Columns;
    // 1. attention: input [rows, dim] -> middle [rows, dim]
    tape.input = x;
    fill_attention(weights, batch, summed, tape);
    // 2. feed-forward: middle [rows, dim] -> activation [tokens, hidden]
    fill_feed_forward(weights, summed, summed, tape);
    // 3. project back and add to the residual stream: y [rows, dim]
    at::Tensor y =
        axis_.row(tape.activation, weights.stack(Role::Down), weights[Role::BiasDown], tape.middle);
    // 4. drop what recompute() will make again, and what backward does not read
    tape.drop(mode);
    return y;
}

void Block::recompute(const Weights& weights, const Batch& batch, Tape& tape) const {
    // RecomputeMode::Selective kept the results of the forward products: the casts serve weights' gradients
    // only. Full repeats these products, but for the last one, whose input is the activation.
    const auto summed = tape.v.defined() ? SumOver::Rows : SumOver::Either;
    fill_attention(weights, batch, summed, tape);
    fill_feed_forward(weights, summed, /*activation_summed=*/SumOver::Rows, tape);
    tape.drop(RecomputeMode::None);
}

/// Returns the output of a norm as the input of a layer's products, and the norm's inverse_rms.
std::tuple<ops::Operand, at::Tensor> Block::normed(const at::Tensor& x, const at::Tensor& weight,
                                                   const ops::Recipe& recipe, SumOver summed) const {
    at::Tensor largest;
    const auto [y, inverse_rms] =
        ops::rms_norm(x, weight, spec_.norm_eps, recipe.shares_x() ? &largest : nullptr);
    return {axis_.cast_if_shared(y, recipe, TensorAxis::Rows::Own, summed, largest), inverse_rms};
}

/// Skips each step whose slot of the tape is filled. forward() therefore runs all steps, and recompute() runs
/// only the steps whose slots Tape::drop() emptied.
void Block::fill_attention(const Weights& weights, const Batch& batch, SumOver summed, Tape& tape) const {
    // 1. normalise: attention_input [rows, dim]
    if (!tape.attention_input.defined()) {
        std::tie(tape.attention_input, tape.attention_inverse_rms) =
            normed(tape.input, weights[Role::AttentionNorm], weights.recipe(Join::Qkv), summed);
    }
    // 2. project to q, k, v: qkv [tokens, (heads + 2 kv_heads) * head_dim]
    if (!tape.v.defined()) {
        tape.qkv = axis_.column(tape.attention_input, weights.stack(Join::Qkv), weights.stack(Join::QkvBias));
        tape.v = split_qkv(tape.qkv, weights).v;
    }
    // 3. normalise (with QK-norm) and rotate: q [tokens, heads * head_dim], k [tokens, kv_heads * head_dim]
    if (!tape.q.defined()) fill_queries_and_keys(weights, batch, tape);
    // 4. attend: y [tokens, heads * head_dim]
    if (!tape.attention.y.defined()) {
        const ContextAxis& context = batch.attention == nullptr ? context_ : *batch.attention;
        tape.attention = context.attention(tape.q, tape.k, tape.v, attention_shape(batch), batch.positions);
    }
    if (!tape.attention_output.defined())
        tape.attention_output =
            axis_.cast_if_shared(tape.attention.y, weights.recipe(Role::Wo), TensorAxis::Rows::All, summed);
    // 5. project back and add to the residual stream: middle [rows, dim]
    if (!tape.middle.defined()) {
        tape.middle =
            axis_.row(tape.attention_output, weights.stack(Role::Wo), weights[Role::BiasO], tape.input);
    }
}

void Block::fill_queries_and_keys(const Weights& weights, const Batch& batch, Tape& tape) const {
    const Qkv products = split_qkv(tape.qkv, weights);
    // 1. without QK-norm: rotate q and k in place, in the columns of qkv
    if (!spec_.qk_norm) {
        ops::write_rope(products.qk, products.qk, rope_, batch.positions);
        tape.q = products.q;
        tape.k = products.k;
        return;
    }
    // 2. with QK-norm: normalise each head into new memory (the norm's backward reads the products in qkv),
    //    then rotate the normalised q and k in place
    tape.q_norm = ops::rms_norm(heads_of(products.q), weights[Role::QNorm], spec_.norm_eps);
    tape.k_norm = ops::rms_norm(heads_of(products.k), weights[Role::KNorm], spec_.norm_eps);
    tape.q = std::exchange(tape.q_norm.y, {}).view(products.q.sizes());
    tape.k = std::exchange(tape.k_norm.y, {}).view(products.k.sizes());
    ops::write_rope(tape.q, tape.q, rope_, batch.positions);
    ops::write_rope(tape.k, tape.k, rope_, batch.positions);
}

/// Skips each step whose slot of the tape is filled, as fill_attention() does.
void Block::fill_feed_forward(const Weights& weights, SumOver summed, SumOver activation_summed,
                              Tape& tape) const {
    // 1. normalise: feed_forward_input [rows, dim]
    if (!tape.feed_forward_input.defined()) {
        std::tie(tape.feed_forward_input, tape.feed_forward_inverse_rms) =
            normed(tape.middle, weights[Role::FfnNorm], weights.recipe(Join::GateUp), summed);
    }
    // 2. project to gate and up: gate_up [tokens, 2 hidden]
    if (!tape.gate_up.defined()) {
        tape.gate_up = axis_.column(tape.feed_forward_input, weights.stack(Join::GateUp),
                                    weights.stack(Join::GateUpBias));
    }
    // 3. silu(gate) * up: activation [tokens, hidden]
    if (!tape.activation.defined()) {
        const ops::Recipe& recipe = weights.recipe(Role::Down);
        at::Tensor largest;
        const at::Tensor y = ops::swiglu(tape.gate_up, recipe.shares_x() ? &largest : nullptr);
        tape.activation = axis_.cast_if_shared(y, recipe, TensorAxis::Rows::All, activation_summed, largest);
    }
}

/// The residual stream bypasses each half of the block. rms_norm_backward() of a half adds the gradient of
/// that half's bypass (its argument `residual`).
at::Tensor Block::backward_input(const Weights& weights, const at::Tensor& dy, const Batch& batch, Tape& tape,
                                 WeightWork& work) const {
    // dy [rows, dim] -> dmiddle [rows, dim] -> dx [rows, dim]
    const at::Tensor dmiddle = feed_forward_backward(weights, dy, tape, work);
    at::Tensor dx = attention_backward(weights, dmiddle, batch, tape, work);
    tape = {};
    return dx;
}

at::Tensor Block::feed_forward_backward(const Weights& weights, const at::Tensor& dy, Tape& tape,
                                        WeightWork& work) const {
    // 1. down projection: dactivation [tokens, hidden], dy_all [tokens, dim]
    const ops::Stack down = weights.stack(Role::Down);
    auto [dactivation, dy_all] = axis_.row_backward(dy, down);
    work.add_product(Role::Down, dy_all, std::move(tape.activation), *down.recipe);
    if (spec_.mlp_bias) work.add_row_sum(Role::BiasDown, dy);
    // 2. silu(gate) * up: dgate_up [tokens, 2 hidden]
    const ops::Stack gate_up = weights.stack(Join::GateUp);
    at::Tensor largest;
    const at::Tensor dgate_up =
        ops::swiglu_backward(dactivation, tape.gate_up, gate_up.recipe->shares_dy() ? &largest : nullptr);
    // 3. gate and up projections: dinput [rows, dim]
    const auto [dinput, dgate_up_operand] = axis_.column_backward(dgate_up, largest, gate_up);
    work.add_product(Join::GateUp, dgate_up_operand, tape.feed_forward_input, *gate_up.recipe, axis_);
    if (spec_.mlp_bias) work.add_row_sum(Join::GateUpBias, dgate_up);
    // 4. norm, plus the gradient of the bypass: dmiddle [rows, dim]
    auto [dmiddle, dnorm] = ops::rms_norm_backward(dinput, tape.middle, weights[Role::FfnNorm],
                                                   tape.feed_forward_inverse_rms, dy);
    work.add_value(Role::FfnNorm, dnorm);
    return dmiddle;
}

at::Tensor Block::attention_backward(const Weights& weights, const at::Tensor& dy, const Batch& batch,
                                     Tape& tape, WeightWork& work) const {
    // 1. output projection: doutput [tokens, heads * head_dim], dy_all [tokens, dim]
    const ops::Stack wo = weights.stack(Role::Wo);
    auto [doutput, dy_all] = axis_.row_backward(dy, wo);
    work.add_product(Role::Wo, dy_all, tape.attention_output, *wo.recipe);
    if (spec_.output_bias) work.add_row_sum(Role::BiasO, dy);
    // 2. attention, rotation and QK-norm: dqkv [tokens, (heads + 2 kv_heads) * head_dim]
    const at::Tensor dqkv = qkv_gradient(weights, std::move(doutput), batch, tape, work);
    if (spec_.qkv_bias) work.add_row_sum(Join::QkvBias, dqkv);
    // 3. projections to q, k, v: dinput [rows, dim]
    const ops::Stack qkv = weights.stack(Join::Qkv);
    const auto [dinput, dqkv_operand] = axis_.column_backward(dqkv, /*largest=*/{}, qkv);
    work.add_product(Join::Qkv, dqkv_operand, tape.attention_input, *qkv.recipe, axis_);
    // 4. norm, plus the gradient of the bypass: dx [rows, dim]
    auto [dx, dnorm] = ops::rms_norm_backward(dinput, tape.input, weights[Role::AttentionNorm],
                                              tape.attention_inverse_rms, dy);
    work.add_value(Role::AttentionNorm, dnorm);
    return dx;
}

/// Returns dqkv, the gradient of the fused projection, with the same layout as qkv. Releases tensors that are
/// no longer needed before it allocates dqkv, which lowers the memory peak.
at::Tensor Block::qkv_gradient(const Weights& weights, at::Tensor doutput, const Batch& batch, Tape& tape,
                               WeightWork& work) const {
    // 1. attention: dq [tokens, heads * head_dim]; dk, dv [tokens, kv_heads * head_dim]
    auto [dq, dk, dv] = context_.attention_backward(doutput, tape.q, tape.k, tape.v, tape.attention,
                                                    attention_shape(batch), batch.positions);
    // 2. release the tensors that are not needed any more; only the backward of QK-norm still reads qkv
    doutput.reset();
    for (at::Tensor* x : {&tape.q, &tape.k, &tape.v}) x->reset();
    if (!spec_.qk_norm) tape.qkv.reset();
    // 3. allocate dqkv and copy dv into its columns
    at::Tensor dqkv = at::empty({dq.size(0), dq.size(1) + dk.size(1) + dv.size(1)}, dq.options());
    const Qkv gradients = split_qkv(dqkv, weights);
    gradients.v.copy_(dv);
    // 4. without QK-norm: rotate dq and dk back, into the columns of dqkv
    if (!spec_.qk_norm) {
        ops::write_rope_backward(gradients.q, dq, rope_, batch.positions);
        ops::write_rope_backward(gradients.k, dk, rope_, batch.positions);
        return dqkv;
    }
    // 5. with QK-norm: rotate dq and dk back in place, then write the norm's gradients into dqkv
    const Qkv products = split_qkv(tape.qkv, weights);
    ops::write_rope_backward(dq, dq, rope_, batch.positions);
    ops::write_rope_backward(dk, dk, rope_, batch.positions);
    work.add_value(Role::QNorm,
                   ops::write_rms_norm_backward(heads_of(gradients.q), heads_of(dq), heads_of(products.q),
                                                weights[Role::QNorm], tape.q_norm.inverse_rms));
    work.add_value(Role::KNorm,
                   ops::write_rms_norm_backward(heads_of(gradients.k), heads_of(dk), heads_of(products.k),
                                                weights[Role::KNorm], tape.k_norm.inverse_rms));
    return dqkv;
}

}  // namespace argosy::model
