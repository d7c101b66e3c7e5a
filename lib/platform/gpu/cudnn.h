// Attention by graphs of cuDNN's own interface, which takes what LibTorch's wrapper of cuDNN does not:
// segments, windows, and a last query at the place of the last key. gpu/attention.h chooses between this and
// FlashAttention.
//
// cudnn.cpp describes a call without cuDNN's types, so that tests read a description without a GPU;
// with_cuda/cudnn_frontend.cpp runs it.
#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <cstdint>
#include <optional>

#include "gpu/attention.h"

namespace argosy::gpu {

/// A graph of cuDNN: everything but the memory of its arguments and the places of its segments.
struct CudnnGraph {
    bool is_backward = false;
    /// The backward pass sums in an order that does not vary from run to run.
    bool is_deterministic = false;
    int64_t num_segments = 0, num_queries = 0, num_keys = 0;  // tokens of all segments
    int64_t max_queries = 0, max_keys = 0;                    // of a segment
    int64_t heads = 0, kv_heads = 0, head_dim = 0;
    /// The last query of a segment is at the place of its last key; a query sees the last `window` keys up to
    /// its own place. Else a query sees all keys of its segment.
    bool is_causal = true;
    std::optional<int64_t> window = {};
    /// Elements from a token to the next. All other arguments are contiguous.
    int64_t q_stride = 0, k_stride = 0, v_stride = 0, y_stride = 0, dy_stride = 0;

    auto operator<=>(const CudnnGraph&) const = default;
};

/// An argument: rows [tokens, heads, head_dim], or [tokens, heads] of fp32 for log_sum_exp. Segment i begins
/// offsets[i] elements after the first; offsets has an entry more, all int64.
struct CudnnRows {
    at::Tensor rows, offsets;
};

/// A call of a graph. A segment with queries has keys, and each of its queries sees a key.
struct CudnnCall {
    CudnnGraph graph;
    at::Tensor query_lengths, key_lengths;  // tokens of each segment, int32
    CudnnRows q, k, v;
    CudnnRows y, log_sum_exp;  // results of the forward pass
    CudnnRows dy, dq, dk, dv;  // undefined in the forward pass
};

/// Whether cuDNN has a kernel for the graph on this thread's GPU. Logs it if not, once for each graph.
bool cudnn_has(const CudnnGraph& graph);
/// Writes the results, and nothing where no segment is. The host reads no tensor. REQUIRES: cudnn_has().
void run_cudnn(const CudnnCall& call);

/// Whether masked_attention() asks cuDNN first, in this process. Initially it does not.
void prefer_cudnn(bool preferred);

// Arguments and results are those of masked_attention() and its backward pass. Nothing is returned if cuDNN
// cannot compute it, or is not preferred.
std::optional<Attention> cudnn_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                         const VisibleKeys& visible);
std::optional<AttentionGradient> cudnn_attention_backward(const at::Tensor& dy, const at::Tensor& q,
                                                          const at::Tensor& k, const at::Tensor& v,
                                                          const Attention& forward,
                                                          const VisibleKeys& visible);

}  // namespace argosy::gpu
