#include "model/plain_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <tuple>

namespace argosy::model {
namespace {

at::Tensor norm(const ModelSpec& spec, const at::Tensor& x, const at::Tensor& weight) {
    return x / ((x * x).mean(-1, /*keepdim=*/true) + spec.norm_eps).sqrt() *
           (spec.norms_add_one ? 1 + weight : weight);
}

at::Tensor activated(const ModelSpec& spec, const at::Tensor& x) {
    if (spec.activation == ops::Activation::Silu) return x / (1 + (-x).exp());
    return x / 2 * (1 + ((x + 0.044715 * x * x * x) * std::sqrt(2 / std::numbers::pi)).tanh());
}

/// Every n-th layer of a model with such layers has no window.
bool has_window(const ModelSpec& spec, int64_t layer) {
    return spec.sliding_window &&
           (spec.full_layer_period == 0 || layer % spec.full_layer_period != spec.full_layer_period - 1);
}

/// x [b, h, s, d]
at::Tensor rotated(const ModelSpec& spec, int64_t layer, const at::Tensor& x) {
    const int64_t seq_len = x.size(2), size = spec.rotary_dim > 0 ? spec.rotary_dim : x.size(3),
                  half = size / 2;
    const at::Tensor turning = x.narrow(3, 0, size);
    const double theta =
        has_window(spec, layer) ? spec.window_rope_theta.value_or(spec.rope_theta) : spec.rope_theta;
    const at::Tensor exponents = at::arange(half, at::kDouble) / static_cast<double>(half);
    const at::Tensor angles = at::arange(seq_len, at::kDouble).outer(1 / at::pow(theta, exponents));
    const at::Tensor twice = at::cat({angles, angles}, -1);
    const at::Tensor rotate_half = at::cat({-x.narrow(3, half, half), x.narrow(3, 0, half)}, -1);
    const at::Tensor turned = turning * twice.cos() + rotate_half * twice.sin();
    return at::cat({turned, x.narrow(3, size, x.size(3) - size)}, -1);
}

/// q [b, h, s, d]; k, v [b, kv heads, s, d]
at::Tensor attention(const ModelSpec& spec, int64_t layer, const at::Tensor& q, const at::Tensor& k,
                     const at::Tensor& v) {
    const int64_t sharing = q.size(1) / k.size(1);
    const at::Tensor all = at::ones({q.size(2), q.size(2)}, at::kBool);
    at::Tensor hidden = all.triu(1);
    if (has_window(spec, layer)) hidden = hidden.logical_or(all.tril(-*spec.sliding_window));
    const at::Tensor scores = q.matmul(k.repeat_interleave(sharing, 1).transpose(2, 3)) /
                              std::sqrt(spec.query_scalar.value_or(static_cast<double>(q.size(3))));
    return scores.masked_fill(hidden, -std::numeric_limits<double>::infinity())
        .softmax(-1)
        .matmul(v.repeat_interleave(sharing, 1));
}

bool has_experts(const ModelSpec& spec, int64_t layer) {
    if (!spec.experts || layer % spec.experts->period != spec.experts->period - 1) return false;
    for (const int64_t dense : spec.experts->dense_layers)
        if (layer == dense) return false;
    return true;
}

/// The choices of experts in all but each token's best groups become -infinity.
at::Tensor in_best_groups(const ops::Router& router, const at::Tensor& choices) {
    const int64_t size = router.num_experts / router.num_groups;
    const at::Tensor of_groups =
        std::get<0>(choices.unflatten(-1, {router.num_groups, size}).topk(std::min<int64_t>(size, 2), -1))
            .sum(-1);
    const at::Tensor chosen = std::get<1>(of_groups.topk(router.top_groups, -1));
    const at::Tensor is_best = at::zeros_like(of_groups).scatter(-1, chosen, 1).repeat_interleave(size, -1);
    return choices.masked_fill(is_best == 0, -std::numeric_limits<double>::infinity());
}

PlainChoice choose(const ops::Router& router, const at::Tensor& logits, const at::Tensor& bias) {
    const bool softmax = router.score == ops::Router::Score::Softmax;
    const at::Tensor scores = softmax ? logits.softmax(-1) : 1 / (1 + (-logits).exp());
    const at::Tensor choices = in_best_groups(router, bias.defined() ? scores + bias : scores);
    const at::Tensor experts = std::get<1>(choices.topk(router.top_k, -1));
    return {logits, scores, at::zeros_like(scores).scatter(-1, experts, 1)};
}

/// Computes all experts for all tokens, and weighs those that are not chosen with 0.
at::Tensor experts(const ModelSpec& spec, const at::Tensor& x, const PlainChoice& choice,
                   const at::Tensor& w1, const at::Tensor& w2, const at::Tensor& w3) {
    const ops::Router& router = spec.experts->router;
    const int64_t count = router.num_experts, hidden = w1.size(0) / count;
    at::Tensor shares = choice.scores * choice.chosen;
    if (router.normalize) shares = shares / shares.sum(-1, /*keepdim=*/true);
    shares = shares * router.scale;
    at::Tensor y = at::zeros_like(x);
    for (int64_t i = 0; i < count; ++i) {
        const auto of = [&](const at::Tensor& stack, int64_t rows) {
            return stack.narrow(0, i * rows, rows).t();
        };
        const at::Tensor gated = activated(spec, x.matmul(of(w1, hidden))) * x.matmul(of(w3, hidden));
        y = y + gated.matmul(of(w2, x.size(-1))) * shares.narrow(-1, i, 1);
    }
    return y;
}

}  // namespace

at::Tensor plain_embedding(const ModelSpec& spec, const at::Tensor& table, const at::Tensor& tokens) {
    const at::Tensor x = table.index_select(0, tokens);
    // Rounded as by transformers.
    return spec.scaled_embeddings ? x * static_cast<double>(std::sqrt(static_cast<float>(spec.dim))) : x;
}

at::Tensor plain_block(const ModelSpec& spec, const NamedTensors& weights, int64_t layer, const at::Tensor& x,
                       PlainChoices* choices) {
    const auto weight = [&](const std::string& name) {
        return weights.at("layers." + std::to_string(layer) + "." + name);
    };
    const auto linear = [&](const at::Tensor& input, const std::string& name, bool bias) {
        const at::Tensor product = input.matmul(weight(name + ".weight").t());
        return bias ? product + weight(name + ".bias") : product;
    };
    const bool before = spec.norms != NormPlace::After, after = spec.norms != NormPlace::Before;
    const auto norm_if = [&](bool has, const at::Tensor& input, const std::string& name) {
        return has ? norm(spec, input, weight(name + ".weight")) : input;
    };
    const at::Tensor normed = norm_if(before, x, "attention_norm");
    const auto heads = [&](const std::string& name, const std::string& of_norm) {
        at::Tensor y = linear(normed, "attention." + name, spec.qkv_bias);
        const std::string norm_name = "attention." + of_norm;
        y = norm_if(!of_norm.empty() && spec.qk_norm == QkNorm::Together, y, norm_name);
        y = y.view({x.size(0), x.size(1), -1, spec.head_dim}).transpose(1, 2);
        return norm_if(!of_norm.empty() && spec.qk_norm == QkNorm::Heads, y, norm_name);
    };
    const at::Tensor q = heads("wq", "q_norm"), k = heads("wk", "k_norm"), v = heads("wv", "");
    const at::Tensor attended = attention(spec, layer, rotated(spec, layer, q), rotated(spec, layer, k), v);
    const at::Tensor joined = attended.transpose(1, 2).reshape({x.size(0), x.size(1), -1});
    const at::Tensor output = linear(joined, "attention.wo", spec.output_bias);
    const at::Tensor middle = x + norm_if(after, output, "attention_post_norm");

    const at::Tensor m = norm_if(before, middle, after ? "ffn_pre_norm" : "ffn_norm");
    if (has_experts(spec, layer)) {
        const auto bias = weights.find("layers." + std::to_string(layer) + ".moe.router.bias");
        const PlainChoice choice = choose(spec.experts->router, m.matmul(weight("moe.router.weight").t()),
                                          bias == weights.end() ? at::Tensor() : bias->second);
        if (choices != nullptr) choices->emplace(layer, choice);
        at::Tensor y = experts(spec, m, choice, weight("moe.experts.w1.weight"),
                               weight("moe.experts.w2.weight"), weight("moe.experts.w3.weight"));
        if (spec.experts->shared_hidden_dim > 0) {
            const at::Tensor hidden = activated(spec, linear(m, "moe.shared_experts.w1", false)) *
                                      linear(m, "moe.shared_experts.w3", false);
            y = y + linear(hidden, "moe.shared_experts.w2", false);
        }
        return middle + norm_if(after, y, "ffn_post_norm");
    }
    const at::Tensor hidden = activated(spec, linear(m, "feed_forward.w1", spec.mlp_bias)) *
                              linear(m, "feed_forward.w3", spec.mlp_bias);
    return middle + norm_if(after, linear(hidden, "feed_forward.w2", spec.mlp_bias), "ffn_post_norm");
}

at::Tensor plain_loss(const ModelSpec& spec, const NamedTensors& weights, const at::Tensor& x,
                      const at::Tensor& targets) {
    const at::Tensor output = weights.at(spec.tied_embeddings ? "tok_embeddings.weight" : "output.weight");
    const at::Tensor logits = norm(spec, x, weights.at("norm.weight")).matmul(output.t());
    const at::Tensor picked = logits.gather(-1, targets.clamp_min(0).unsqueeze(-1)).squeeze(-1);
    return ((logits.logsumexp(-1) - picked) * targets.ge(0)).sum();
}

at::Tensor plain_model(const ModelSpec& spec, const NamedTensors& weights, const at::Tensor& tokens,
                       const at::Tensor& targets, PlainChoices* choices) {
    const at::Tensor table = weights.at("tok_embeddings.weight");
    at::Tensor x =
        plain_embedding(spec, table, tokens.reshape(-1)).view({tokens.size(0), tokens.size(1), spec.dim});
    for (int64_t layer = 0; layer < spec.num_layers; ++layer)
        x = plain_block(spec, weights, layer, x, choices);
    return plain_loss(spec, weights, x, targets);
}

}  // namespace argosy::model
