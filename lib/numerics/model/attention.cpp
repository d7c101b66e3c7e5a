#include "model/attention.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "model/norm.h"

// TensorAxis::column takes [rows, ...] and returns [tokens, ...] (a gather). TensorAxis::row takes
// [tokens, ...] and returns [rows, ...] (a reduce-scatter).
namespace argosy::model {

using ops::SumOver;

void AttentionTape::drop(RecomputeMode mode) {
    drop_casts({&input, &output}, mode);
    if (mode == RecomputeMode::None) return;
    if (inverse_rms_of_heads.q.defined()) {
        q.reset();
        k.reset();
    }
}

void AttentionPlaces::declare_matrices(const ModelSpec& spec, int64_t layer, Unit& unit) {
    const int64_t q = spec.num_heads * spec.head_dim, kv = spec.num_kv_heads * spec.head_dim;
    norms.declare_before(spec, "attention_norm.weight", unit);
    Parameter wq = projection("attention.wq.weight", q, spec.dim, kOutputs, kDefaultDeviation),
              wk = projection("attention.wk.weight", kv, spec.dim, kOutputs, kDefaultDeviation),
              wv = projection("attention.wv.weight", kv, spec.dim, kOutputs, kDefaultDeviation);
    wk.max_parts = wv.max_parts = spec.num_kv_heads;
    wq.spec.num_heads = static_cast<int>(spec.num_heads);
    wk.spec.num_heads = wv.spec.num_heads = static_cast<int>(spec.num_kv_heads);
    wq.spec.makes_scores = wk.spec.makes_scores = true;
    qkv = unit.add({wq, wk, wv}, "wq, wk, wv");
    wo = unit.add({projection("attention.wo.weight", spec.dim, q, kInputs, residual_deviation(layer))}, "wo");
    norms.declare_after(spec, "attention_post_norm.weight", unit);
}

void AttentionPlaces::declare_vectors(const ModelSpec& spec, Unit& unit) {
    const int64_t q = spec.num_heads * spec.head_dim, kv = spec.num_kv_heads * spec.head_dim;
    if (spec.qkv_bias) {
        Parameter of_q = cut_vector("attention.wq.bias", q, 0), of_k = cut_vector("attention.wk.bias", kv, 0),
                  of_v = cut_vector("attention.wv.bias", kv, 0);
        of_k.max_parts = of_v.max_parts = spec.num_kv_heads;
        of_q.spec.makes_scores = of_k.spec.makes_scores = true;
        qkv_bias = unit.add({of_q, of_k, of_v}, qkv.layers);
    }
    if (spec.output_bias) output_bias = unit.add({vector("attention.wo.bias", spec.dim, 0)}, wo.layers);
    if (spec.qk_norm == QkNorm::None) return;
    const bool together = spec.qk_norm == QkNorm::Together;
    const auto norm = [&](const char* name, int64_t size) {
        return together ? cut_vector(name, size, initial_norm_weight(spec))
                        : norm_weight(spec, name, spec.head_dim);
    };
    q_norm = unit.add({norm("attention.q_norm.weight", q)});
    Parameter of_k = norm("attention.k_norm.weight", kv);
    if (together) of_k.max_parts = spec.num_kv_heads;
    k_norm = unit.add({of_k});
}

FlopsPerToken attention_flops(const ModelSpec& spec, const LayerSpec& layer, int64_t sequence_length) {
    const auto width = static_cast<double>(spec.num_heads * spec.head_dim);
    const auto length = static_cast<double>(sequence_length);
    const double window = std::min(length, static_cast<double>(layer.window.value_or(sequence_length)));
    return {.causal = 12 * width * window * (1 - window / (2 * length)), .noncausal = 12 * width * window};
}

/// Views of the columns of qkv, or of its gradient.
struct Attention::Qkv {
    at::Tensor q;     // [tokens, heads * head_dim]
    at::Tensor k, v;  // [tokens, kv_heads * head_dim]
    at::Tensor qk;    // [tokens, (heads + kv_heads) * head_dim]: q and k together
};

Attention::Qkv Attention::split(const at::Tensor& qkv, const Weights& weights) const {
    const int64_t q = weights.tensors[places_.qkv.first].size(0),
                  k = weights.tensors[places_.qkv.first + 1].size(0);
    return {qkv.narrow(1, 0, q), qkv.narrow(1, q, k), qkv.narrow(1, q + k, k), qkv.narrow(1, 0, q + k)};
}

QueriesAndKeys Attention::qk_weights(const Weights& weights) const {
    return {weights[places_.q_norm], weights[places_.k_norm]};
}

ops::AttentionShape Attention::shape_of(const Batch& batch) const {
    auto shape = ops::AttentionShape::of_whole_sequences(batch.num_sequences, batch.seq_len, spec_.head_dim,
                                                         layer_.window.value_or(ops::kNoWindow));
    shape.document_offsets = batch.document_offsets;
    return shape;
}

void Attention::fill(const Weights& weights, const at::Tensor& x, const Batch& batch, SumOver summed,
                     AttentionTape& tape) const {
    // 1. normalise, if there is a norm before: input [rows, dim]
    norms_.fill(weights, x, weights.recipe(places_.qkv), summed, tape);
    // 2. project to q, k, v: qkv [tokens, (heads + 2 kv_heads) * head_dim]
    if (!tape.v.defined()) {
        tape.qkv = axis_.column(tape.input, weights.stack(places_.qkv), weights.stack(places_.qkv_bias));
        tape.v = split(tape.qkv, weights).v;
    }
    // 3. normalise (with QK-norm) and rotate: q [tokens, heads * head_dim], k [tokens, kv_heads * head_dim]
    if (!tape.q.defined()) fill_queries_and_keys(weights, batch, tape);
    // 4. attend: y [tokens, heads * head_dim]
    if (!tape.result.y.defined()) {
        const ContextAxis& context = batch.attention == nullptr ? context_ : *batch.attention;
        tape.result = context.attention(tape.q, tape.k, tape.v, shape_of(batch), batch.positions);
    }
    if (!tape.output.defined())
        tape.output =
            axis_.cast_if_shared(tape.result.y, weights.recipe(places_.wo), TensorAxis::Rows::All, summed);
}

void Attention::fill_queries_and_keys(const Weights& weights, const Batch& batch, AttentionTape& tape) const {
    const Qkv products = split(tape.qkv, weights);
    // 1. without QK-norm: rotate q and k in place, in the columns of qkv
    if (!places_.q_norm) {
        ops::write_rope(products.qk, products.qk, rope_, batch.positions);
        tape.q = products.q;
        tape.k = products.k;
        return;
    }
    // 2. with QK-norm: normalise into new memory (the norm's backward reads the products in qkv), then rotate
    //    the normalised q and k in place
    auto [y, inverse_rms] = qk_norms_.forward({products.q, products.k}, qk_weights(weights));
    tape.inverse_rms_of_heads = std::move(inverse_rms);
    tape.q = std::move(y.q);
    tape.k = std::move(y.k);
    ops::write_rope(tape.q, tape.q, rope_, batch.positions);
    ops::write_rope(tape.k, tape.k, rope_, batch.positions);
}

at::Tensor Attention::add_to(const at::Tensor& x, const Weights& weights, AttentionTape& tape) const {
    return norms_.add_to(x, weights, tape.output, places_.wo, places_.output_bias, tape);
}

at::Tensor Attention::backward_input(const Weights& weights, const at::Tensor& dy, const at::Tensor& x,
                                     const Batch& batch, AttentionTape& tape, WeightWork& work) const {
    // 1. norm after and output projection: dadded [rows, dim], doutput [tokens, heads * head_dim]
    const at::Tensor dadded = norms_.gradient_of_added(weights, dy, tape, work);
    const ops::Stack wo = weights.stack(places_.wo);
    auto [doutput, dadded_all] = axis_.row_backward(dadded, wo);
    work.add_product(places_.wo, dadded_all, tape.output, *wo.recipe);
    if (places_.output_bias) work.add_row_sum(places_.output_bias, dadded);
    // 2. attention, rotation and QK-norm: dqkv [tokens, (heads + 2 kv_heads) * head_dim]
    const at::Tensor dqkv = qkv_gradient(weights, std::move(doutput), batch, tape, work);
    if (places_.qkv_bias) work.add_row_sum(places_.qkv_bias, dqkv);
    // 3. projections to q, k, v: dinput [rows, dim]
    const ops::Stack qkv = weights.stack(places_.qkv);
    const auto [dinput, dqkv_operand] = axis_.column_backward(dqkv, /*largest=*/{}, qkv);
    work.add_product(places_.qkv, dqkv_operand, tape.input, *qkv.recipe, axis_);
    // 4. norm before, plus the gradient of the bypass: dx [rows, dim]
    return norms_.gradient_of_x(weights, dinput, dy, x, tape, work);
}

/// Returns dqkv, the gradient of the fused projection, with the same layout as qkv. Releases tensors that are
/// no longer needed before it allocates dqkv, which lowers the memory peak.
at::Tensor Attention::qkv_gradient(const Weights& weights, at::Tensor doutput, const Batch& batch,
                                   AttentionTape& tape, WeightWork& work) const {
    // 1. attention: dq [tokens, heads * head_dim]; dk, dv [tokens, kv_heads * head_dim]
    auto [dq, dk, dv] = context_.attention_backward(doutput, tape.q, tape.k, tape.v, tape.result,
                                                    shape_of(batch), batch.positions);
    // 2. release the tensors that are not needed any more; only the backward of QK-norm still reads qkv
    doutput.reset();
    for (at::Tensor* x : {&tape.q, &tape.k, &tape.v}) x->reset();
    if (!places_.q_norm) tape.qkv.reset();
    // 3. allocate dqkv and copy dv into its columns
    at::Tensor dqkv = at::empty({dq.size(0), dq.size(1) + dk.size(1) + dv.size(1)}, dq.options());
    const Qkv gradients = split(dqkv, weights);
    gradients.v.copy_(dv);
    // 4. without QK-norm: rotate dq and dk back, into the columns of dqkv
    if (!places_.q_norm) {
        ops::write_rope_backward(gradients.q, dq, rope_, batch.positions);
        ops::write_rope_backward(gradients.k, dk, rope_, batch.positions);
        return dqkv;
    }
    // 5. with QK-norm: rotate dq and dk back in place, then write the norm's gradients into dqkv
    const Qkv products = split(tape.qkv, weights);
    ops::write_rope_backward(dq, dq, rope_, batch.positions);
    ops::write_rope_backward(dk, dk, rope_, batch.positions);
    const auto [dq_norm, dk_norm] =
        qk_norms_.backward({gradients.q, gradients.k}, {dq, dk}, {products.q, products.k},
                           qk_weights(weights), tape.inverse_rms_of_heads);
    work.add_value(places_.q_norm, dq_norm);
    work.add_value(places_.k_norm, dk_norm);
    return dqkv;
}

}  // namespace argosy::model
