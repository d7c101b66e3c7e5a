// Causal softmax attention with grouped queries. Query head h attends to key head h * kv_heads / heads.
// Scores are divided by sqrt(head_dim). Shapes: q [tokens, heads * head_dim]; k, v [tokens, kv_heads *
// head_dim]; tokens = num_sequences * seq_len.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace argosy::ops {

struct AttentionShape {
    int64_t num_sequences, seq_len, head_dim;
};

struct AttentionOutput {
    at::Tensor y;  // [tokens, heads * head_dim]
    /// Backward needs these in addition to q, k, v and y.
    at::Tensor log_sum_exp;             // [num_sequences, heads, seq_len], accumulation type
    at::Tensor seed = {}, offset = {};  // defined only by LibTorch's kernels for GPUs
};
AttentionOutput attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const AttentionShape& shape);

struct AttentionGradient {
    at::Tensor dq, dk, dv;
};
AttentionGradient attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& v, const AttentionOutput& output,
                                     const AttentionShape& shape);

// Attention as a composition of LibTorch's operations, for tensors that no kernel supports: on a GPU other
// types than bf16 and fp16 or an unsupported head_dim (gpu/attention.h). All scores are in memory at once.
// Arguments are those of attention() and attention_backward().

AttentionOutput composed_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const AttentionShape& shape);

AttentionGradient composed_attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                              const at::Tensor& v, const AttentionOutput& output,
                                              const AttentionShape& shape);

}  // namespace argosy::ops
