// Attention by Argosy's kernels for processors (kernels/attention.h), with the arguments of ops/attention.h.
//
// Threads share the work by its amount: the scores that are not hidden. A thread gets whole key heads of
// sequences, or some blocks of their queries; in the backward pass some blocks of their keys. The threads
// that share a key head in the backward pass add to sums of dq in fp32, one after the other from the last
// keys to the first (kernels/attention.h); these sums take twice the memory of the key head's part of dq in
// bf16. The bits do not depend on the threads.
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
    int64_t group;              // sequence * kv_heads + key head
    kernels::TokenRange range;  // of queries, or of keys in the backward pass
};
/// The parts of each of `num_threads` threads. `shapes` has the kernels' shape of each sequence.
using AttentionParts = std::vector<std::vector<AttentionPart>>;
AttentionParts divide_attention(const std::vector<kernels::AttentionShape>& shapes, int64_t num_kv_heads,
                                int num_threads);
/// The parts of a group with later keys belong to earlier threads: a part waits for these. A thread's own
/// parts are of different groups, the one that has a group's last keys first.
AttentionParts divide_attention_backward(const std::vector<kernels::AttentionShape>& shapes,
                                         int64_t num_kv_heads, int num_threads);

}  // namespace argosy::ops
