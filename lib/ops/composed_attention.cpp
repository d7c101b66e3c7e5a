#include "ops/composed_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>

#include <cmath>
#include <limits>

#include "ops/types.h"

// Shape suffixes: b sequences, g key heads, t query heads that share one, s tokens of a sequence, d elements
// of a head.
namespace argosy::ops {
namespace {

/// The view [b, g, t, s, d] of x, in the accumulation type; for keys and values t is 1.
at::Tensor by_key_head(const at::Tensor& x, const AttentionShape& shape, int64_t num_key_heads) {
    return widened(x)
        .view({shape.num_sequences, shape.seq_len, num_key_heads, -1, shape.head_dim})
        .permute({0, 2, 3, 1, 4});
}

/// The inverse of by_key_head: rows of tokens, in the shape and type of `like`.
at::Tensor rows(const at::Tensor& x_bgtsd, const at::Tensor& like) {
    return x_bgtsd.permute({0, 3, 1, 2, 4}).reshape(like.sizes()).to(like.scalar_type());
}

double scale(const AttentionShape& shape) { return 1 / std::sqrt(static_cast<double>(shape.head_dim)); }

at::Tensor masked_scores(const at::Tensor& q, const at::Tensor& k, const AttentionShape& shape) {
    const at::Tensor later =
        at::ones({shape.seq_len, shape.seq_len}, q.options().dtype(at::kBool)).triu(/*diagonal=*/1);
    return at::matmul(q, k.transpose(-2, -1))
        .mul_(scale(shape))
        .masked_fill_(later, -std::numeric_limits<double>::infinity());
}

}  // namespace

AttentionOutput composed_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const AttentionShape& shape) {
    const int64_t num_key_heads = k.size(1) / shape.head_dim;
    const at::Tensor scores =
        masked_scores(by_key_head(q, shape, num_key_heads), by_key_head(k, shape, num_key_heads), shape);
    const at::Tensor maxima = scores.amax(-1, /*keepdim=*/true);
    const at::Tensor exponentials = (scores - maxima).exp_(), sums = exponentials.sum(-1, /*keepdim=*/true);
    const at::Tensor weights = exponentials / sums, log_sum_exp = sums.log().add_(maxima).squeeze(-1);
    return {.y = rows(at::matmul(weights, by_key_head(v, shape, num_key_heads)), q),
            .log_sum_exp = log_sum_exp.flatten(1, 2)};
}

// dv = p^T dy, ds = p (dy v^T - sum(dy y)), dq = ds k, dk = ds^T q, where p are the weights and s the scores.
AttentionGradient composed_attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                              const at::Tensor& v, const AttentionOutput& output,
                                              const AttentionShape& shape) {
    const int64_t num_key_heads = k.size(1) / shape.head_dim;
    const auto split = [&](const at::Tensor& x) { return by_key_head(x, shape, num_key_heads); };
    const at::Tensor wide_q = split(q), wide_k = split(k), wide_dy = split(dy);
    const at::Tensor log_sum_exp =
        output.log_sum_exp.view({shape.num_sequences, num_key_heads, -1, shape.seq_len, 1});
    const at::Tensor weights = (masked_scores(wide_q, wide_k, shape) - log_sum_exp).exp_();
    const at::Tensor projection = (wide_dy * split(output.y)).sum(-1, /*keepdim=*/true);
    const at::Tensor dscores =
        (at::matmul(wide_dy, split(v).transpose(-2, -1)) - projection).mul_(weights).mul_(scale(shape));
    const auto of_key_head = [](const at::Tensor& x) { return x.sum(2, /*keepdim=*/true); };
    return {rows(at::matmul(dscores, wide_k), q),
            rows(of_key_head(at::matmul(dscores.transpose(-2, -1), wide_q)), k),
            rows(of_key_head(at::matmul(weights.transpose(-2, -1), wide_dy)), v)};
}

}  // namespace argosy::ops
