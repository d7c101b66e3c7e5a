// Attention by LibTorch's kernels for GPUs (gpu/attention.h), with the arguments of ops/attention.h.
#pragma once

#include "ops/attention.h"

namespace argosy::ops {

/// Whether the kernels compute this attention: of whole sequences, with the offsets of documents if there are
/// documents. They do so on every Path, because composed_attention() holds all scores in memory.
bool gpu_serves(const at::Tensor& q, const AttentionShape& shape, const at::Tensor& positions);

// REQUIRES: gpu_serves().

AttentionOutput gpu_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionShape& shape, const at::Tensor& positions);

AttentionGradient gpu_attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, const AttentionOutput& output,
                                         const AttentionShape& shape, const at::Tensor& positions);

}  // namespace argosy::ops
