// Causal attention by the kernels that LibTorch brings: cuDNN's where they serve, else FlashAttention. Bf16
// and fp16; both take fewer key heads than query heads, and rows of tokens that lie apart.
#pragma once

#include <ATen/core/Tensor.h>

namespace argosy::gpu {

/// Tensors are [sequences, heads, tokens, head_dim] in any strides with dense heads.
struct Attention {
    at::Tensor y;
    at::Tensor log_sum_exp;
    at::Tensor seed, offset;  // of a dropout that there is not: backward wants them back
};

/// Whether attention() takes such tensors.
bool attention_serves(const at::Tensor& q);

Attention attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

struct AttentionGradient {
    at::Tensor dq, dk, dv;
};
AttentionGradient attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& v, const Attention& forward);

}  // namespace argosy::gpu
