#include "gpu/cudnn.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/zeros.h>

#include <atomic>
#include <limits>
#include <mutex>
#include <set>
#include <string>

#include "base/log.h"

namespace argosy::gpu {
namespace {

std::atomic<bool> is_preferred = false;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Tokens of all sequences, [tokens, heads, head_dim]. A view, unless cuDNN cannot read it: it loads 16 bytes
/// at a time.
at::Tensor rows_of(const at::Tensor& x_bshd) {
    constexpr int64_t kBytes = 16;
    const at::Tensor rows = x_bshd.flatten(0, 1);
    const bool is_aligned = rows.stride(0) * rows.element_size() % kBytes == 0 &&
                            reinterpret_cast<uintptr_t>(rows.const_data_ptr()) % kBytes == 0;
    const bool has_adjacent_heads = rows.stride(1) == rows.size(2) && rows.stride(2) == 1;
    return is_aligned && has_adjacent_heads ? rows : rows.contiguous();
}

/// The segments as cuDNN gets them. Queries that see no key are in none: releases before 9.25 compute NaN for
/// a segment with queries and without keys. A segment without a query has no key either.
struct Segments {
    at::Tensor first_query, first_key;      // int64, with the number of tokens at the end
    at::Tensor query_lengths, key_lengths;  // int32
};

at::Tensor ends_of(const at::Tensor& offsets, const at::Tensor& x_bshd) {
    if (offsets.defined()) return offsets.to(at::kLong);
    return at::arange(x_bshd.size(0) + 1, x_bshd.options().dtype(at::kLong)).mul_(x_bshd.size(1));
}

Segments segments_of(const at::Tensor& q, const at::Tensor& k, const VisibleKeys& visible) {
    const at::Tensor query_ends = ends_of(visible.query_offsets, q),
                     key_ends = ends_of(visible.key_offsets, k);
    const int64_t n = query_ends.size(0) - 1;
    const auto begins = [&](const at::Tensor& ends) { return ends.narrow(0, 0, n); };
    const at::Tensor num_queries = query_ends.diff(), num_keys = key_ends.diff();
    // The last query is at the place of the last key, so the first queries of a longer segment see no key.
    const at::Tensor seeing =
        visible.causal ? at::minimum(num_queries, num_keys) : num_queries.masked_fill(num_keys.eq(0), 0);
    const at::Tensor seen = num_keys.masked_fill(seeing.eq(0), 0);
    return {at::cat({query_ends.narrow(0, 1, n) - seeing, query_ends.narrow(0, n, 1)}),
            at::cat({begins(key_ends), key_ends.narrow(0, n, 1)}), seeing.to(at::kInt), seen.to(at::kInt)};
}

CudnnRows of_queries(const at::Tensor& rows, const Segments& segments) {
    return {rows, segments.first_query * rows.stride(0)};
}
CudnnRows of_keys(const at::Tensor& rows, const Segments& segments) {
    return {rows, segments.first_key * rows.stride(0)};
}

/// A call without the gradients.
CudnnCall described(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& y,
                    const at::Tensor& log_sum_exp, const VisibleKeys& visible, const Segments& segments) {
    CudnnCall call = {.query_lengths = segments.query_lengths,
                      .key_lengths = segments.key_lengths,
                      .q = of_queries(rows_of(q), segments),
                      .k = of_keys(rows_of(k), segments),
                      .v = of_keys(rows_of(v), segments),
                      .y = of_queries(rows_of(y), segments),
                      .log_sum_exp = of_queries(log_sum_exp, segments)};
    call.graph = {.num_segments = segments.query_lengths.size(0),
                  .num_queries = q.size(0) * q.size(1),
                  .num_keys = k.size(0) * k.size(1),
                  .max_queries = q.size(1),
                  .max_keys = k.size(1),
                  .heads = q.size(2),
                  .kv_heads = k.size(2),
                  .head_dim = q.size(3),
                  .is_causal = visible.causal,
                  .window = visible.window,
                  .q_stride = call.q.rows.stride(0),
                  .k_stride = call.k.rows.stride(0),
                  .v_stride = call.v.rows.stride(0),
                  .y_stride = call.y.rows.stride(0)};
    return call;
}

/// Why no graph can express the attention; null: one may. A window without an order of queries and keys has
/// no diagonal. Backward needs memory for the longest sequence in each segment if head_dim is not a multiple
/// of 16, and has no kernel for a single query and key.
const char* obstacle(const at::Tensor& q, const at::Tensor& k, const VisibleKeys& visible) {
    if (q.scalar_type() != at::kBFloat16) return "it is not computed in bfloat16";
    if (q.size(3) % 16 != 0 || q.size(3) > 128) return "head_dim is no multiple of 16 up to 128";
    if (visible.window && !visible.causal) return "it has a window, but no order of queries and keys";
    if (q.size(1) == 1 && k.size(1) == 1) return "there is one query with one key";
    return nullptr;
}

/// Whether cuDNN is wanted, and a graph may express the attention.
bool is_for_cudnn(const at::Tensor& q, const at::Tensor& k, const VisibleKeys& visible) {
    if (!is_preferred || q.numel() == 0 || k.numel() == 0) return false;
    const char* const why_not = obstacle(q, k, visible);
    if (!why_not) return true;
    static auto& mutex = *new std::mutex;
    static auto& said = *new std::set<std::string>;
    const std::lock_guard lock(mutex);
    if (said.insert(why_not).second)
        spdlog::info("attention by FlashAttention instead of cuDNN: {}", why_not);
    return false;
}

/// cuDNN's log_sum_exp has the heads of a token side by side. FlashAttention's is [heads, tokens of all
/// sequences] with segments, else [sequences, heads, tokens]; its backward pass knows no strides.
at::Tensor as_flash(const at::Tensor& log_sum_exp_th, const at::Tensor& q, const VisibleKeys& visible) {
    if (visible.query_offsets.defined()) return log_sum_exp_th.t().contiguous();
    return log_sum_exp_th.view({q.size(0), q.size(1), q.size(2)}).transpose(1, 2).contiguous();
}
at::Tensor from_flash(const at::Tensor& log_sum_exp, const VisibleKeys& visible) {
    if (visible.query_offsets.defined()) return log_sum_exp.t().contiguous();
    return log_sum_exp.transpose(1, 2).flatten(0, 1).contiguous();
}

}  // namespace

void prefer_cudnn(bool preferred) { is_preferred = preferred; }

std::optional<Attention> cudnn_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                         const VisibleKeys& visible) {
    if (!is_for_cudnn(q, k, visible)) return std::nullopt;
    // 1. the results of queries that see no key, which no segment has
    const at::Tensor y = at::zeros(q.sizes(), q.options());
    const at::Tensor log_sum_exp =
        at::full({q.size(0) * q.size(1), q.size(2)}, kInfinity, q.options().dtype(at::kFloat));
    // 2. all others
    const CudnnCall call = described(q, k, v, y, log_sum_exp, visible, segments_of(q, k, visible));
    if (!cudnn_has(call.graph)) return std::nullopt;
    run_cudnn(call);
    return Attention{y, as_flash(log_sum_exp, q, visible)};
}

std::optional<AttentionGradient> cudnn_attention_backward(const at::Tensor& dy, const at::Tensor& q,
                                                          const at::Tensor& k, const at::Tensor& v,
                                                          const Attention& forward,
                                                          const VisibleKeys& visible) {
    if (!is_for_cudnn(q, k, visible)) return std::nullopt;
    const Segments segments = segments_of(q, k, visible);
    CudnnCall call =
        described(q, k, v, forward.y, from_flash(forward.log_sum_exp, visible), visible, segments);
    call.dy = of_queries(rows_of(dy), segments);
    call.graph.dy_stride = call.dy.rows.stride(0);
    call.graph.is_backward = true;
    call.graph.is_deterministic = at::globalContext().deterministicAlgorithms();
    if (!cudnn_has(call.graph)) return std::nullopt;
    // Queries and keys that are in no segment have no gradient.
    const auto zeros = [](const at::Tensor& like) { return at::zeros(like.sizes(), like.options()); };
    const AttentionGradient gradient = {zeros(q), zeros(k), zeros(v)};
    call.dq = of_queries(rows_of(gradient.dq), segments);
    call.dk = of_keys(rows_of(gradient.dk), segments);
    call.dv = of_keys(rows_of(gradient.dv), segments);
    run_cudnn(call);
    return gradient;
}

}  // namespace argosy::gpu
