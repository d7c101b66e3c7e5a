#include "ops/gpu_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include <limits>
#include <optional>

#include "base/error.h"
#include "gpu/attention.h"
#include "ops/documents.h"
#include "ops/planned_gpu.h"

namespace argosy::ops {
namespace {

/// [sequences, tokens, heads, head_dim].
at::Tensor by_token(const at::Tensor& x, const AttentionShape& shape) {
    return x.view({shape.num_sequences, x.size(0) / shape.num_sequences, -1, shape.head_dim});
}
at::Tensor by_head(const at::Tensor& x, const AttentionShape& shape) {
    return by_token(x, shape).transpose(1, 2);
}

/// The inverse of both: rows of tokens, in the shape of `like`.
at::Tensor as_rows(const at::Tensor& x_bshd, const at::Tensor& like) { return x_bshd.reshape(like.sizes()); }
at::Tensor as_rows_of_heads(const at::Tensor& x_bhsd, const at::Tensor& like) {
    return as_rows(x_bhsd.transpose(1, 2), like);
}

/// The place of the keys in a sequence.
enum class KeysAre { AtQueries, UpToLastQuery, BeforeQueries, Elsewhere };
KeysAre place_of_keys(const AttentionShape& shape, const at::Tensor& positions) {
    const bool has_documents = shape.document_offsets.defined();
    if (shape.q_len == shape.k_len && shape.q_offset == 0) {
        return has_documents || !positions.defined() ? KeysAre::AtQueries : KeysAre::Elsewhere;
    }
    if (!positions.defined()) return KeysAre::Elsewhere;
    if (has_documents && shape.q_offset + shape.q_len == shape.k_len) return KeysAre::UpToLastQuery;
    const bool sees_all = shape.window >= shape.q_offset + shape.q_len;  // the distance to the first key, + 1
    return shape.q_offset >= shape.k_len && sees_all ? KeysAre::BeforeQueries : KeysAre::Elsewhere;
}

/// The keys that a query sees if it does not see all keys of its sequence up to its own place.
std::optional<gpu::VisibleKeys> visible_keys(const AttentionShape& shape, const at::Tensor& positions) {
    gpu::VisibleKeys visible;
    if (shape.window < shape.k_len) visible.window = shape.window;
    Segments segments;
    switch (place_of_keys(shape, positions)) {
        case KeysAre::UpToLastQuery:
            segments = segments_to_queries(shape.document_offsets, positions, shape.q_len, shape.k_len);
            break;
        case KeysAre::BeforeQueries:
            segments = segments_before_queries(positions, shape.q_len, shape.k_len, shape.q_offset);
            visible.causal = false;
            visible.window.reset();
            break;
        default:
            if (!is_for_flash(shape, positions)) return std::nullopt;
            if (positions.defined()) segments = {shape.document_offsets, shape.document_offsets};
    }
    if (segments.query_offsets.defined() && segments.query_offsets.numel() - 1 > gpu::kMaxSegments) {
        throw UserError(
            "attention on GPUs takes at most {} documents in a microbatch, but this one has room for {}: set "
            "a "
            "smaller training.local_batch_size, or training.attend_across_documents = true",
            gpu::kMaxSegments, segments.query_offsets.numel() - 1);
    }
    visible.query_offsets = segments.query_offsets;
    visible.key_offsets = segments.key_offsets;
    return visible;
}

/// Attention to segments has the log_sum_exp of ops/attention.h, so that outputs can be merged:
/// [num_sequences, heads, q_len], -infinity for a query that sees no key. The kernels have [heads,
/// num_sequences * q_len] and +infinity.
at::Tensor from_kernel(const at::Tensor& log_sum_exp, const AttentionShape& shape) {
    const double infinity = std::numeric_limits<double>::infinity();
    const at::Tensor by_sequence = log_sum_exp.view({-1, shape.num_sequences, shape.q_len}).transpose(0, 1);
    return by_sequence.masked_fill(by_sequence.eq(infinity), -infinity).contiguous();
}
at::Tensor to_kernel(const at::Tensor& log_sum_exp, const AttentionShape& shape) {
    return log_sum_exp.transpose(0, 1).reshape({-1, shape.num_sequences * shape.q_len});
}

at::Tensor planned_like(const at::Tensor& x) { return at::empty(x.sizes(), x.options()); }

/// Tensors like the kernels' results for tensors without data. The kernels' own workspaces are not known
/// here.
AttentionOutput planned_output(const at::Tensor& q, const AttentionShape& shape) {
    return {planned_like(q), at::empty({shape.num_sequences, q.size(1) / shape.head_dim, shape.q_len},
                                       q.options().dtype(at::kFloat))};
}

}  // namespace

bool gpu_serves(const at::Tensor& q, const AttentionShape& shape, const at::Tensor& positions) {
    return counts_as_gpu(q) && place_of_keys(shape, positions) != KeysAre::Elsewhere &&
           gpu::supports_attention(by_head(q, shape));
}

bool is_for_flash(const AttentionShape& shape, const at::Tensor& positions) {
    return shape.window < shape.k_len || positions.defined();
}

AttentionOutput gpu_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionShape& shape, const at::Tensor& positions) {
    const auto visible = visible_keys(shape, positions);
    if (q.is_meta()) return planned_output(q, shape);
    if (visible) {
        const gpu::Attention result =
            gpu::masked_attention(by_token(q, shape), by_token(k, shape), by_token(v, shape), *visible);
        const at::Tensor y = as_rows(result.y, q);
        if (visible->query_offsets.defined()) return {y, from_kernel(result.log_sum_exp, shape)};
        return {y, result.log_sum_exp, result.seed, result.offset};
    }
    const gpu::Attention result = gpu::attention(by_head(q, shape), by_head(k, shape), by_head(v, shape));
    return {as_rows_of_heads(result.y, q), result.log_sum_exp, result.seed, result.offset};
}

AttentionGradient gpu_attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, const AttentionOutput& output,
                                         const AttentionShape& shape, const at::Tensor& positions) {
    const auto visible = visible_keys(shape, positions);
    if (q.is_meta()) return {planned_like(q), planned_like(k), planned_like(v)};
    if (visible) {
        const auto [dq, dk, dv] = gpu::masked_attention_backward(
            by_token(dy, shape), by_token(q, shape), by_token(k, shape), by_token(v, shape),
            {by_token(output.y, shape),
             visible->query_offsets.defined() ? to_kernel(output.log_sum_exp, shape) : output.log_sum_exp,
             output.seed, output.offset},
            *visible);
        return {as_rows(dq, q), as_rows(dk, k), as_rows(dv, v)};
    }
    const auto [dq, dk, dv] =
        gpu::attention_backward(by_head(dy, shape), by_head(q, shape), by_head(k, shape), by_head(v, shape),
                                {by_head(output.y, shape), output.log_sum_exp, output.seed, output.offset});
    return {as_rows_of_heads(dq, q), as_rows_of_heads(dk, k), as_rows_of_heads(dv, v)};
}

}  // namespace argosy::ops
