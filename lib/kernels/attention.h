// Causal softmax attention of the query heads that share one key head, within one sequence:
//   y_i = sum over j <= i of softmax_j(q_i k_j * scale) v_j.
//
// FLOP: of the seq_len^2 / 2 scores of each query head, each takes 2 * head_dim in each of two products
// forward, five backward, and an exponential. Blocks of queries and keys are small enough that operands,
// scores and sums stay in the second cache; nothing of the size of all scores is kept. Scratch of a thread: 8
// * seq_len * head_dim bytes forward, 20 backward, less where panels are of bf16, and up to 1 MiB for blocks.
//
// Each sum is taken in one order: the same call gives the same bits. A NaN among k or v also reaches queries
// up to one tile before its token, whose weight for it is 0.
#pragma once

#include <cstdint>

namespace argosy::kernels {

struct AttentionShape {
    int64_t seq_len, head_dim, num_heads;  // num_heads: query heads, which share the key head
    float scale;
};

/// A matrix of one head or of several side by side: row t, of token t, begins at data + t * stride.
template <class T>
struct TokenRows {
    T* data;
    int64_t stride;
};

template <class T>
struct Attention {
    AttentionShape shape;
    TokenRows<const T> q, k, v;
    TokenRows<T> y;
    float* log_sum_exp;  // [num_heads, seq_len], of scaled scores
};

template <class T>
struct AttentionBackward {
    AttentionShape shape;
    TokenRows<const T> dy, q, k, v, y;
    const float* log_sum_exp;
    TokenRows<T> dq, dk, dv;
};

}  // namespace argosy::kernels
