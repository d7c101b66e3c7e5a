// Causal softmax attention of the query heads that share one key head, within one sequence:
//   y_i = sum over j <= i of softmax_j(q_i k_j * scale) v_j.
//
// Cost: each query head has seq_len^2 / 2 scores. For each score, the forward pass takes an exponential and
// two products of 2 * head_dim FLOP, the backward pass an exponential and five such products. Blocks of
// queries and keys are so small that operands, scores and sums stay in the L2 cache; the matrix of all scores
// is never stored. A thread's scratch memory takes 8 bytes in the forward pass and 20 in the backward pass
// for each of seq_len * head_dim elements (less with bf16 panels), and up to 1 MiB for blocks.
//
// Each sum has one order, so that the same call gives the same bits. A NaN in k or v also reaches queries up
// to one tile before its token, although their weight for that token is 0.
#pragma once

#include <cstdint>

namespace argosy::kernels {

struct AttentionShape {
    int64_t seq_len, head_dim, num_heads;  // num_heads: query heads, which share the key head
    float scale;
};

/// A matrix of one head or of several side by side: the row of token t begins at data + t * stride.
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
