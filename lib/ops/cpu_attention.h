// Attention by Argosy's kernels for processors (kernels/attention.h), with the arguments of ops/attention.h.
//
// Threads share the work by its amount: the scores that are not hidden. A thread gets whole key heads of
// sequences, or some blocks of their queries. If a backward pass has fewer key heads than threads, threads
// compute dq of some blocks of queries, or dk and dv of some blocks of keys. Each of both needs the scores
// and their gradients, so such a pass has seven products in place of five. The bits do not depend on the
// threads.
#pragma once

#include <vector>

#include "ops/attention.h"

namespace argosy::ops {

// REQUIRES: has_kernels(q), and q is not on a GPU.

/// y is in `y_type`: that of q, or the accumulation type.
AttentionOutput cpu_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionShape& shape, const at::Tensor& positions,
                              at::ScalarType y_type);

AttentionGradient cpu_attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, const AttentionOutput& output,
                                         const AttentionShape& shape, const at::Tensor& positions);

/// A part of the work of a call: some blocks of one key head of one sequence, and of the query heads that
/// share the key head.
struct AttentionPart {
    enum class Of { All, Queries, Keys };  // All: of the forward pass y of the queries

    int64_t group;  // sequence * kv_heads + key head
    Of of;
    kernels::TokenRange range;  // of queries, or of keys for Of::Keys
};
/// The parts of each of `num_threads` threads. `shapes` has the kernels' shape of each sequence.
using AttentionParts = std::vector<std::vector<AttentionPart>>;
AttentionParts divide_attention(const std::vector<kernels::AttentionShape>& shapes, int64_t num_kv_heads,
                                int num_threads);
AttentionParts divide_attention_backward(const std::vector<kernels::AttentionShape>& shapes,
                                         int64_t num_kv_heads, int num_threads);

}  // namespace argosy::ops
