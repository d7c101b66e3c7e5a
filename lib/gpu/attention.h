// Causal attention with LibTorch's kernels: cuDNN's kernel where by_cudnn() in with_cuda/attention.cpp allows
// it, else FlashAttention's kernel. Both kernels take bf16 and fp16, fewer key heads than query heads, and
// tokens whose rows are not adjacent in memory.
#pragma once

#include <ATen/core/Tensor.h>

namespace argosy::gpu {

/// The results of the forward pass. q, k, v, y and their gradients are [sequences, heads, tokens, head_dim]
/// with any strides, except that head_dim is contiguous.
struct Attention {
    at::Tensor y;
    at::Tensor log_sum_exp;
    at::Tensor seed, offset;  // random state of dropout, which is off; the backward kernels require it
};

/// Whether attention() supports the element type and head_dim of q.
bool supports_attention(const at::Tensor& q);

Attention attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

struct AttentionGradient {
    at::Tensor dq, dk, dv;
};
AttentionGradient attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& v, const Attention& forward);

}  // namespace argosy::gpu
