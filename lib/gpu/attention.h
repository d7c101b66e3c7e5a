// Causal attention with LibTorch's kernels: cuDNN's kernel where by_cudnn() in with_cuda/attention.cpp allows
// it, else FlashAttention's kernel, which alone computes attention within documents and windows. Both kernels
// take bf16 and fp16, fewer key heads than query heads, and tokens whose rows are not adjacent in memory.
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
    at::Tensor seed, offset;  // random state of dropout, which is off; the backward kernels require it
};

/// Whether attention() supports the element type and head_dim of q.
bool supports_attention(const at::Tensor& q);

/// q, k and v are [sequences, heads, tokens, head_dim].
Attention attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

struct AttentionGradient {
    at::Tensor dq, dk, dv;
};
AttentionGradient attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& v, const Attention& forward);

/// The keys up to its own place that a query sees.
struct VisibleKeys {
    std::optional<int64_t> window = {};  // the last so many, with its own
    /// The documents to which the keys belong: [n + 1], int32: 0, then the ends of n documents, which follow
    /// each other over all tokens of all sequences; some may be empty. The host does not read them.
    /// Undefined: each sequence is one document.
    at::Tensor document_offsets = {};
};
/// q, k and v are [sequences, tokens, heads, head_dim]. The host reads no tensor, so that a graph can record
/// it.
Attention masked_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const VisibleKeys& visible);
AttentionGradient masked_attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                            const at::Tensor& v, const Attention& forward,
                                            const VisibleKeys& visible);

}  // namespace argosy::gpu
