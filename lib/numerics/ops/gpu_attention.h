// Attention by LibTorch's kernels for GPUs (gpu/attention.h), with the arguments of ops/attention.h.
#pragma once

#include "ops/attention.h"

namespace argosy::ops {

/// Whether the kernels compute this attention. They do so on every Path, because composed_attention() holds
/// all scores in memory. Parts of sequences need positions. The kernels compute:
/// - whole sequences, with the offsets of documents if there are documents
/// - a part of the queries and all keys up to its last query, with the offsets of documents
/// - a part of the queries and keys before all of them, unless the window hides some of these keys
bool gpu_serves(const at::Tensor& q, const AttentionShape& shape, const at::Tensor& positions);

/// Whether only FlashAttention computes it: within documents, a window or parts of sequences.
bool is_for_flash(const AttentionShape& shape, const at::Tensor& positions);

// REQUIRES: gpu_serves().

AttentionOutput gpu_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionShape& shape, const at::Tensor& positions);

AttentionGradient gpu_attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, const AttentionOutput& output,
                                         const AttentionShape& shape, const at::Tensor& positions);

}  // namespace argosy::ops
