#include "gpu/attention.h"

#include <ATen/Context.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/empty.h>

#include <optional>

#include "gpu/cudnn.h"

namespace argosy::gpu {
namespace {

constexpr double kNoDropout = 0;
constexpr bool kCausal = true;

/// Whether cuDNN computes attention for q; otherwise FlashAttention does. cuDNN's backward pass sums in an
/// order that varies from run to run, so that deterministic mode excludes cuDNN. FlashAttention has a
/// deterministic backward pass. cuDNN gets only lengths that are whole tiles, because it has been wrong at
/// other lengths: LibTorch itself refuses cuDNN for a length of 1, and gradients became NaN at odd multiples
/// of 64 tokens (pytorch issues 138531, 196678).
bool by_cudnn(const at::Tensor& q) {
    constexpr int64_t kTile = 128;
    const auto& context = at::globalContext();
    return context.userEnabledCuDNNSDP() && !context.deterministicAlgorithms() && q.size(2) % kTile == 0 &&
           q.size(3) % 8 == 0 && q.size(3) <= 128;
}

// FlashAttention takes whole sequences [sequences, tokens, heads, head_dim], or segments [tokens, heads,
// head_dim] with their offsets. Every segment may be as long as a sequence, so the kernels' grids do not
// depend on the offsets.

at::Tensor as_given(const at::Tensor& x, const VisibleKeys& visible) {
    return visible.query_offsets.defined() ? x.flatten(0, 1) : x;
}

std::optional<int64_t> window_left(const VisibleKeys& visible) {
    return visible.window ? std::optional(*visible.window - 1) : std::nullopt;
}

}  // namespace

bool supports_attention(const at::Tensor& q) { return kernels_take(q.scalar_type(), q.size(3)); }

Attention attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    if (by_cudnn(q)) {
        auto result =
            at::_scaled_dot_product_cudnn_attention(q, k, v, /*attn_bias=*/std::nullopt,
                                                    /*compute_log_sumexp=*/true, kNoDropout, kCausal);
        return {std::get<0>(result), std::get<1>(result), std::get<6>(result), std::get<7>(result)};
    }
    auto result = at::_scaled_dot_product_flash_attention(q, k, v, kNoDropout, kCausal);
    return {std::get<0>(result), std::get<1>(result), std::get<6>(result), std::get<7>(result)};
}

AttentionGradient attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& v, const Attention& forward) {
    const int64_t seq_len = q.size(2);
    const at::Tensor none;
    if (by_cudnn(q)) {
        auto [dq, dk, dv] = at::_scaled_dot_product_cudnn_attention_backward(
            dy, q, k, v, forward.y, forward.log_sum_exp, forward.seed, forward.offset, /*attn_bias=*/none,
            /*cum_seq_q=*/none, /*cum_seq_k=*/none, seq_len, seq_len, kNoDropout, kCausal);
        return {dq, dk, dv};
    }
    auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_backward(
        dy, q, k, v, forward.y, forward.log_sum_exp, /*cum_seq_q=*/none, /*cum_seq_k=*/none, seq_len, seq_len,
        kNoDropout, kCausal, forward.seed, forward.offset);
    return {dq, dk, dv};
}

Attention masked_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const VisibleKeys& visible) {
    if (const auto by_cudnn = cudnn_attention(q, k, v, visible)) return *by_cudnn;
    const auto given = [](const at::Tensor& offsets) {
        return offsets.defined() ? std::optional(offsets) : std::optional<at::Tensor>();
    };
    auto [y, log_sum_exp, seed, offset, debug_mask] = at::_flash_attention_forward(
        as_given(q, visible), as_given(k, visible), as_given(v, visible), given(visible.query_offsets),
        given(visible.key_offsets), /*max_q=*/q.size(1), /*max_k=*/k.size(1), kNoDropout, visible.causal,
        /*return_debug_mask=*/false, /*scale=*/std::nullopt, window_left(visible),
        /*window_size_right=*/std::nullopt);
    return {y.view(q.sizes()), log_sum_exp, seed, offset};
}

AttentionGradient masked_attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                            const at::Tensor& v, const Attention& forward,
                                            const VisibleKeys& visible) {
    if (const auto by_cudnn = cudnn_attention_backward(dy, q, k, v, forward, visible)) return *by_cudnn;
    const auto given = [&](const at::Tensor& x) { return as_given(x, visible); };
    const auto random_state = [&](const at::Tensor& state) {
        return state.defined() ? state : at::empty({2}, q.options().dtype(at::kLong));
    };
    auto [dq, dk, dv] = at::_flash_attention_backward(
        given(dy), given(q), given(k), given(v), given(forward.y), forward.log_sum_exp, visible.query_offsets,
        visible.key_offsets, /*max_q=*/q.size(1), /*max_k=*/k.size(1), kNoDropout, visible.causal,
        random_state(forward.seed), random_state(forward.offset), /*scale=*/std::nullopt,
        window_left(visible), /*window_size_right=*/std::nullopt);
    return {dq, dk, dv};
}

}  // namespace argosy::gpu
