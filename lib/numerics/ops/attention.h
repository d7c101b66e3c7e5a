// Causal softmax attention with grouped queries. Query head h attends to key head h * kv_heads / heads.
// Scores are divided by sqrt(head_dim). Shapes: q [num_sequences * q_len, heads * head_dim]; k, v
// [num_sequences * k_len, kv_heads * head_dim].
#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstdint>

#include "kernels/attention.h"

namespace argosy::ops {

using kernels::kNoWindow;

/// The place where attention leaves the largest scores of its heads.
struct ScoreWatch {
    at::Tensor largest = {};  // [heads], accumulation type; undefined: nobody asks for them
    double threshold = 0;     // at least 0: smaller scores do not count (ops/largest_scores.h)
};

/// The queries and keys of each sequence. Both may be a part of it: query i is at the place of key
/// q_offset + i, which may be outside of the keys. A query sees the keys from its own place back to the
/// beginning of its document, and at most `window` of them.
struct AttentionShape {
    int64_t num_sequences, q_len, k_len, head_dim;
    int64_t q_offset = 0;
    int64_t window = kNoWindow;
    /// The documents that `positions` of attention() describes, for kernels on GPUs, which need both
    /// (ops/documents.h): document_offsets() of whole sequences, document_offsets_of_part() of the queries if
    /// they are a part.
    at::Tensor document_offsets = {};
    ScoreWatch watch = {};  // of the forward pass

    static AttentionShape of_whole_sequences(int64_t num_sequences, int64_t seq_len, int64_t head_dim,
                                             int64_t window = kNoWindow) {
        return {num_sequences, seq_len, seq_len, head_dim, 0, window, {}, {}};
    }
    /// The factor of the scores.
    double scale() const { return 1 / std::sqrt(static_cast<double>(head_dim)); }
};

struct AttentionOutput {
    at::Tensor y;  // as q; 0 for a query that sees no key
    /// Backward needs these in addition to q, k, v and y.
    /// [num_sequences, heads, q_len], accumulation type; -infinity without a key. LibTorch's kernels for GPUs
    /// have shapes of their own for whole sequences without documents.
    at::Tensor log_sum_exp;
    at::Tensor seed = {}, offset = {};  // defined only by LibTorch's kernels for GPUs
};
/// `positions` [num_sequences * q_len], int64: the position of each query's token in its document. Undefined:
/// a sequence is one document. REQUIRES: within a sequence, the documents follow each other.
AttentionOutput attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const AttentionShape& shape, const at::Tensor& positions = {});

/// attention() to a part of the keys, for merge_attention(): y is in the accumulation type. LibTorch's own
/// kernels round y to the type of q first.
AttentionOutput attention_part(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const AttentionShape& shape, const at::Tensor& positions = {});

/// Attention to all keys, from the outputs for two disjoint sets of keys and the same queries. y and
/// log_sum_exp are in the accumulation type, so that merging outputs of attention_part() rounds nothing.
AttentionOutput merge_attention(const AttentionOutput& first, const AttentionOutput& second);

struct AttentionGradient {
    at::Tensor dq, dk, dv;
};
/// If the keys are a part of those to which the queries attend, `output` is that for all keys: the gradients
/// are then the part of these keys.
AttentionGradient attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& v, const AttentionOutput& output,
                                     const AttentionShape& shape, const at::Tensor& positions = {});

// Attention as a composition of LibTorch's operations, for what no kernel supports: on a GPU other types than
// bf16, an unsupported head_dim (gpu/attention.h), documents without document_offsets, and parts of sequences
// that ops/gpu_attention.h does not name; on processors documents, windows and parts in fp64. All scores are
// in memory at once. Arguments are those of attention() and attention_backward().

AttentionOutput composed_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const AttentionShape& shape, const at::Tensor& positions = {});

AttentionGradient composed_attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                              const at::Tensor& v, const AttentionOutput& output,
                                              const AttentionShape& shape, const at::Tensor& positions = {});

}  // namespace argosy::ops
