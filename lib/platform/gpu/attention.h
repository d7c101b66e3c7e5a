// Causal attention with LibTorch's kernels: cuDNN's kernel where by_cudnn() in with_cuda/attention.cpp allows
// it, else FlashAttention's kernel, which also computes attention within documents and windows, unless
// prefer_cudnn() asks cuDNN itself for that (gpu/cudnn.h). All kernels take bf16, fewer key heads than query
// heads, and tokens whose rows are not adjacent in memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace argosy::gpu {

/// The results of the forward pass. q, k, v, y and their gradients have any strides, except that head_dim is
/// contiguous.
struct Attention {
    at::Tensor y;
    at::Tensor log_sum_exp;
    /// Random state of dropout, which is off; the backward kernels require it. May be undefined for
    /// masked_attention_backward().
    at::Tensor seed, offset;
};

/// Whether attention() supports the element type and head_dim of q [..., head_dim], which may have no data.
bool supports_attention(const at::Tensor& q);
/// Whether LibTorch's kernels support an element type and head_dim.
inline bool kernels_take(at::ScalarType type, int64_t head_dim) {
    return type == at::kBFloat16 && head_dim % 8 == 0 && head_dim <= 256;
}

/// q, k and v are [sequences, heads, tokens, head_dim].
Attention attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

struct AttentionGradient {
    at::Tensor dq, dk, dv;
};
AttentionGradient attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& v, const Attention& forward);

/// The maximum number of segments in a call of masked_attention(): its grid has a row of blocks for each.
inline constexpr int64_t kMaxSegments = 65535;

/// The keys that a query sees.
struct VisibleKeys {
    /// Whether a query sees only the keys up to its own place. The last query of a segment is at the place of
    /// the segment's last key.
    bool causal = true;
    std::optional<int64_t> window = {};  // the last so many of these, with its own
    /// Segments: the queries of segment i see no keys but those of segment i. Both [n + 1], int32: 0, then
    /// the ends of n segments, which follow each other over all tokens of all sequences; some have no query,
    /// or no key. The host does not read them. Undefined: each sequence is one segment.
    at::Tensor query_offsets = {}, key_offsets = {};
};
/// q is [sequences, queries, heads, head_dim], k and v are [sequences, keys, heads, head_dim]. A query that
/// sees no key has y = 0 and log_sum_exp = +infinity. If there are segments, log_sum_exp is [heads, queries
/// of all sequences]. The host reads no tensor, so that a graph can record it.
Attention masked_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const VisibleKeys& visible);
AttentionGradient masked_attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                            const at::Tensor& v, const Attention& forward,
                                            const VisibleKeys& visible);

}  // namespace argosy::gpu
