#include "ops/gpu_attention.h"

#include <optional>

#include "gpu/attention.h"
#include "gpu/device.h"

namespace argosy::ops {
namespace {

/// [sequences, tokens, heads, head_dim].
at::Tensor by_token(const at::Tensor& x, const AttentionShape& shape) {
    return x.view({shape.num_sequences, shape.q_len, -1, shape.head_dim});
}
at::Tensor by_head(const at::Tensor& x, const AttentionShape& shape) {
    return by_token(x, shape).transpose(1, 2);
}

/// The inverse of both: rows of tokens, in the shape of `like`.
at::Tensor as_rows(const at::Tensor& x_bshd, const at::Tensor& like) { return x_bshd.reshape(like.sizes()); }
at::Tensor as_rows_of_heads(const at::Tensor& x_bhsd, const at::Tensor& like) {
    return as_rows(x_bhsd.transpose(1, 2), like);
}

/// The keys that a query sees if it does not see all keys of its sequence up to its own place.
std::optional<gpu::VisibleKeys> visible_keys(const AttentionShape& shape, const at::Tensor& positions) {
    gpu::VisibleKeys visible;
    if (shape.window < shape.k_len) visible.window = shape.window;
    if (positions.defined()) visible.document_offsets = shape.document_offsets;
    return visible.window || positions.defined() ? std::optional(visible) : std::nullopt;
}

}  // namespace

bool gpu_serves(const at::Tensor& q, const AttentionShape& shape, const at::Tensor& positions) {
    return gpu::holds(q) && shape.q_len == shape.k_len && shape.q_offset == 0 &&
           (!positions.defined() || shape.document_offsets.defined()) &&
           gpu::supports_attention(by_head(q, shape));
}

AttentionOutput gpu_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionShape& shape, const at::Tensor& positions) {
    if (const auto visible = visible_keys(shape, positions)) {
        const gpu::Attention result =
            gpu::masked_attention(by_token(q, shape), by_token(k, shape), by_token(v, shape), *visible);
        return {as_rows(result.y, q), result.log_sum_exp, result.seed, result.offset};
    }
    const gpu::Attention result = gpu::attention(by_head(q, shape), by_head(k, shape), by_head(v, shape));
    return {as_rows_of_heads(result.y, q), result.log_sum_exp, result.seed, result.offset};
}

AttentionGradient gpu_attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, const AttentionOutput& output,
                                         const AttentionShape& shape, const at::Tensor& positions) {
    if (const auto visible = visible_keys(shape, positions)) {
        const auto [dq, dk, dv] = gpu::masked_attention_backward(
            by_token(dy, shape), by_token(q, shape), by_token(k, shape), by_token(v, shape),
            {by_token(output.y, shape), output.log_sum_exp, output.seed, output.offset}, *visible);
        return {as_rows(dq, q), as_rows(dk, k), as_rows(dv, v)};
    }
    const auto [dq, dk, dv] =
        gpu::attention_backward(by_head(dy, shape), by_head(q, shape), by_head(k, shape), by_head(v, shape),
                                {by_head(output.y, shape), output.log_sum_exp, output.seed, output.offset});
    return {as_rows_of_heads(dq, q), as_rows_of_heads(dk, k), as_rows_of_heads(dv, v)};
}

}  // namespace argosy::ops
