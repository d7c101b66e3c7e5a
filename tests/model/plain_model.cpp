#include "model/plain_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>

#include <cmath>
#include <limits>

namespace argosy::model {
namespace {

at::Tensor norm(const ModelSpec& spec, const at::Tensor& x, const at::Tensor& weight) {
    return x / ((x * x).mean(-1, /*keepdim=*/true) + spec.norm_eps).sqrt() * weight;
}

at::Tensor silu(const at::Tensor& x) { return x / (1 + (-x).exp()); }

/// x [b, h, s, d]
at::Tensor rotated(const ModelSpec& spec, const at::Tensor& x) {
    const int64_t seq_len = x.size(2), half = x.size(3) / 2;
    const at::Tensor exponents = at::arange(half, at::kDouble) / static_cast<double>(half);
    const at::Tensor angles = at::arange(seq_len, at::kDouble).outer(1 / at::pow(spec.rope_theta, exponents));
    const at::Tensor twice = at::cat({angles, angles}, -1);
    const at::Tensor rotate_half = at::cat({-x.narrow(3, half, half), x.narrow(3, 0, half)}, -1);
    return x * twice.cos() + rotate_half * twice.sin();
}

/// q [b, h, s, d]; k, v [b, kv heads, s, d]
at::Tensor attention(const ModelSpec& spec, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    const int64_t sharing = q.size(1) / k.size(1);
    const at::Tensor all = at::ones({q.size(2), q.size(2)}, at::kBool);
    at::Tensor hidden = all.triu(1);
    if (spec.sliding_window) hidden = hidden.logical_or(all.tril(-*spec.sliding_window));
    const at::Tensor scores =
        q.matmul(k.repeat_interleave(sharing, 1).transpose(2, 3)) / std::sqrt(static_cast<double>(q.size(3)));
    return scores.masked_fill(hidden, -std::numeric_limits<double>::infinity())
        .softmax(-1)
        .matmul(v.repeat_interleave(sharing, 1));
}

}  // namespace

at::Tensor plain_block(const ModelSpec& spec, const NamedTensors& weights, int64_t layer,
                       const at::Tensor& x) {
    const auto weight = [&](const std::string& name) {
        return weights.at("layers." + std::to_string(layer) + "." + name);
    };
    const auto linear = [&](const at::Tensor& input, const std::string& name, bool bias) {
        const at::Tensor product = input.matmul(weight(name + ".weight").t());
        return bias ? product + weight(name + ".bias") : product;
    };
    const at::Tensor normed = norm(spec, x, weight("attention_norm.weight"));
    const auto heads = [&](const std::string& name) {
        return linear(normed, "attention." + name, spec.qkv_bias)
            .view({x.size(0), x.size(1), -1, spec.head_dim})
            .transpose(1, 2);
    };
    at::Tensor q = heads("wq"), k = heads("wk");
    if (spec.qk_norm) {
        q = norm(spec, q, weight("attention.q_norm.weight"));
        k = norm(spec, k, weight("attention.k_norm.weight"));
    }
    const at::Tensor attended = attention(spec, rotated(spec, q), rotated(spec, k), heads("wv"));
    const at::Tensor joined = attended.transpose(1, 2).reshape({x.size(0), x.size(1), -1});
    const at::Tensor middle = x + linear(joined, "attention.wo", spec.output_bias);

    const at::Tensor m = norm(spec, middle, weight("ffn_norm.weight"));
    const at::Tensor hidden =
        silu(linear(m, "feed_forward.w1", spec.mlp_bias)) * linear(m, "feed_forward.w3", spec.mlp_bias);
    return middle + linear(hidden, "feed_forward.w2", spec.mlp_bias);
}

at::Tensor plain_loss(const ModelSpec& spec, const NamedTensors& weights, const at::Tensor& x,
                      const at::Tensor& targets) {
    const at::Tensor output = weights.at(spec.tied_embeddings ? "tok_embeddings.weight" : "output.weight");
    const at::Tensor logits = norm(spec, x, weights.at("norm.weight")).matmul(output.t());
    const at::Tensor picked = logits.gather(-1, targets.clamp_min(0).unsqueeze(-1)).squeeze(-1);
    return ((logits.logsumexp(-1) - picked) * targets.ge(0)).sum();
}

at::Tensor plain_model(const ModelSpec& spec, const NamedTensors& weights, const at::Tensor& tokens,
                       const at::Tensor& targets) {
    const at::Tensor table = weights.at("tok_embeddings.weight");
    at::Tensor x = table.index_select(0, tokens.reshape(-1)).view({tokens.size(0), tokens.size(1), spec.dim});
    for (int64_t layer = 0; layer < spec.num_layers; ++layer) x = plain_block(spec, weights, layer, x);
    return plain_loss(spec, weights, x, targets);
}

}  // namespace argosy::model
