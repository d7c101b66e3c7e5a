// Causal softmax attention with grouped queries. q [tokens, heads * head_dim]; k, v [tokens, kv_heads *
// head_dim]; tokens = num_sequences * seq_len. Query head h attends to key head h * kv_heads / heads; scores
// are divided by sqrt(head_dim).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace argosy::ops {

struct AttentionShape {
    int64_t num_sequences, seq_len, head_dim;
};

struct AttentionOutput {
    at::Tensor y;            // [tokens, heads * head_dim]
    at::Tensor log_sum_exp;  // [num_sequences, heads, seq_len], accumulation type: what backward needs beside
                             // q, k, v, y
    at::Tensor seed = {}, offset = {};  // likewise, of LibTorch's kernels for GPUs
};
AttentionOutput attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const AttentionShape& shape);

struct AttentionGradient {
    at::Tensor dq, dk, dv;
};
AttentionGradient attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& v, const AttentionOutput& output,
                                     const AttentionShape& shape);

}  // namespace argosy::ops
