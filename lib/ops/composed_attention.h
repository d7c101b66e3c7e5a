// Attention as a composition of LibTorch's operations, for tensors that no kernel takes: fp32 and fp64 on a
// GPU, and tensors without memory. All scores are in memory at once. Arguments are as in ops/attention.h.
#pragma once

#include "ops/attention.h"

namespace argosy::ops {

AttentionOutput composed_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const AttentionShape& shape);

AttentionGradient composed_attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                              const at::Tensor& v, const AttentionOutput& output,
                                              const AttentionShape& shape);

}  // namespace argosy::ops
