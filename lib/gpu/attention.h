// Causal attention by LibTorch's kernels: cuDNN's where by_cudnn() allows them, else FlashAttention's. Both
// take bf16 and fp16, fewer key heads than query heads, and rows of tokens that are not contiguous.
#pragma once

#include <ATen/core/Tensor.h>

namespace argosy::gpu {

/// Tensors are [sequences, heads, tokens, head_dim] with any strides, except that head_dim is contiguous.
struct Attention {
    at::Tensor y;
    at::Tensor log_sum_exp;
    at::Tensor seed, offset;  // random state of the dropout, which is off; backward requires it
};

/// Whether attention() supports the element type and head_dim of q.
bool attention_serves(const at::Tensor& q);

Attention attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

struct AttentionGradient {
    at::Tensor dq, dk, dv;
};
AttentionGradient attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& v, const Attention& forward);

}  // namespace argosy::gpu
