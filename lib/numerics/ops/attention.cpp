#include "ops/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "ops/cpu_attention.h"
#include "ops/gpu_attention.h"
#include "ops/kernel_calls.h"
#include "ops/largest_scores.h"
#include "ops/numerics.h"
#include "ops/planned_gpu.h"
#include "ops/work.h"

// Four implementations: LibTorch's kernels for GPUs (ops/gpu_attention.h), Argosy's kernels for processors
// (ops/cpu_attention.h), LibTorch's kernel for processors (plain_), and a composition of LibTorch's
// operations (composed_).
//
// Shape suffixes: b sequences, h heads, g key heads, t query heads that share a key head, s tokens of a
// sequence (queries or keys), d elements of a head.

namespace argosy::ops {
namespace {

constexpr double kNoDropout = 0;
constexpr bool kCausal = true;

/// The number of queries or keys of each sequence.
int64_t tokens_of_sequence(const at::Tensor& x, const AttentionShape& shape) {
    return x.size(0) / std::max<int64_t>(1, shape.num_sequences);
}

at::Tensor heads_first(const at::Tensor& x, const AttentionShape& shape) {
    return x.view({shape.num_sequences, tokens_of_sequence(x, shape), -1, shape.head_dim})
        .transpose(1, 2);  // bhsd
}

/// Whether each query attends to all keys of its sequence up to its own place, and the queries are all tokens
/// of the sequence.
bool is_plain(const AttentionShape& shape, const at::Tensor& positions) {
    return shape.q_len == shape.k_len && shape.q_offset == 0 && shape.window >= shape.k_len &&
           !positions.defined();
}

at::Tensor rows(const at::Tensor& x_bhsd) {
    return x_bhsd.transpose(1, 2).reshape({x_bhsd.size(0) * x_bhsd.size(2), -1});
}

/// LibTorch's kernel for processors, or tensors like its results if q has no data (meta), for which LibTorch
/// has no kernel.
std::tuple<at::Tensor, at::Tensor> flash_attention(const at::Tensor& q_bhsd, const at::Tensor& k_bhsd,
                                                   const at::Tensor& v_bhsd) {
    if (!q_bhsd.is_meta())
        return at::_scaled_dot_product_flash_attention_for_cpu(q_bhsd, k_bhsd, v_bhsd, kNoDropout, kCausal);
    const int64_t b = q_bhsd.size(0), h = q_bhsd.size(1), s = q_bhsd.size(2), d = q_bhsd.size(3);
    const auto wide = q_bhsd.options().dtype(accumulation_type(q_bhsd.scalar_type()));
    return {at::empty({b, s, h, d}, q_bhsd.options()).transpose(1, 2),
            at::empty({b, s, h}, wide).transpose(1, 2)};
}

/// Repeats each key head `times` times, because the kernel needs as many key heads as query heads.
at::Tensor repeat_heads(const at::Tensor& k_bhsd, int64_t times) {
    if (times == 1) return k_bhsd;
    const int64_t b = k_bhsd.size(0), h = k_bhsd.size(1), s = k_bhsd.size(2), d = k_bhsd.size(3);
    return k_bhsd.unsqueeze(2).expand({b, h, times, s, d}).reshape({b, h * times, s, d});
}

at::Tensor sum_repeated(const at::Tensor& dk_bhsd, int64_t times) {
    if (times == 1) return dk_bhsd;
    const int64_t b = dk_bhsd.size(0), h = dk_bhsd.size(1), s = dk_bhsd.size(2), d = dk_bhsd.size(3);
    return widened(dk_bhsd).view({b, h / times, times, s, d}).sum(2).to(dk_bhsd.scalar_type());
}

/// The gradients of q, k and v of flash_attention().
std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_attention_backward(const at::Tensor& dy_bhsd,
                                                                        const at::Tensor& q_bhsd,
                                                                        const at::Tensor& k_bhsd,
                                                                        const at::Tensor& v_bhsd,
                                                                        const AttentionOutput& output_bhsd) {
    if (!q_bhsd.is_meta()) {
        return at::_scaled_dot_product_flash_attention_for_cpu_backward(
            dy_bhsd, q_bhsd, k_bhsd, v_bhsd, output_bhsd.y, output_bhsd.log_sum_exp, kNoDropout, kCausal);
    }
    const auto like = [](const at::Tensor& x_bhsd) {
        return at::empty_like(x_bhsd.transpose(1, 2), at::MemoryFormat::Contiguous).transpose(1, 2);
    };
    return {like(q_bhsd), like(k_bhsd), like(v_bhsd)};
}

AttentionOutput plain_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionShape& shape) {
    const int64_t times = q.size(1) / k.size(1);
    auto [y_bhsd, log_sum_exp] =
        flash_attention(heads_first(q, shape), repeat_heads(heads_first(k, shape), times),
                        repeat_heads(heads_first(v, shape), times));
    return {rows(y_bhsd), log_sum_exp};
}

AttentionGradient plain_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                 const at::Tensor& v, const AttentionOutput& output,
                                 const AttentionShape& shape) {
    const int64_t times = q.size(1) / k.size(1);
    auto [dq, dk, dv] = flash_attention_backward(
        heads_first(dy, shape), heads_first(q, shape), repeat_heads(heads_first(k, shape), times),
        repeat_heads(heads_first(v, shape), times), {heads_first(output.y, shape), output.log_sum_exp});
    return {rows(dq), rows(sum_repeated(dk.contiguous(), times)), rows(sum_repeated(dv.contiguous(), times))};
}

/// Returns x as [b, g, t, s, d] in the accumulation type. For keys and values, t is 1.
at::Tensor by_key_head(const at::Tensor& x, const AttentionShape& shape, int64_t num_key_heads) {
    return widened(x)
        .view({shape.num_sequences, tokens_of_sequence(x, shape), num_key_heads, -1, shape.head_dim})
        .permute({0, 2, 3, 1, 4});
}

/// The inverse of by_key_head: rows of tokens, in the shape of `like`.
at::Tensor rows(const at::Tensor& x_bgtsd, const at::Tensor& like, at::ScalarType type) {
    return x_bgtsd.permute({0, 3, 1, 2, 4}).reshape(like.sizes()).to(type);
}
at::Tensor rows(const at::Tensor& x_bgtsd, const at::Tensor& like) {
    return rows(x_bgtsd, like, like.scalar_type());
}

/// Whether a query does not see a key: [q_len, k_len], or [num_sequences, 1, 1, q_len, k_len] for documents.
at::Tensor hidden_keys(const AttentionShape& shape, const at::Tensor& positions, c10::Device device) {
    const auto options = at::TensorOptions(device).dtype(at::kLong);
    const at::Tensor places = at::arange(shape.q_offset, shape.q_offset + shape.q_len, options).unsqueeze(1);
    const at::Tensor distance = places - at::arange(shape.k_len, options);  // of the key from the query
    at::Tensor hidden = distance.lt(0).bitwise_or_(distance.ge(shape.window));
    if (!positions.defined()) return hidden;
    return hidden.bitwise_or(distance.gt(positions.view({shape.num_sequences, 1, 1, shape.q_len, 1})));
}

at::Tensor masked_scores(const at::Tensor& q, const at::Tensor& k, const AttentionShape& shape,
                         const at::Tensor& positions) {
    return at::matmul(q, k.transpose(-2, -1))
        .mul_(shape.scale())
        .masked_fill_(hidden_keys(shape, positions, q.device()), -std::numeric_limits<double>::infinity());
}

/// Passes over all scores, of which each reads or writes them.
void note_passes(const at::Tensor& scores, int num_passes) {
    for (int i = 0; i < num_passes; ++i) note_pass({scores});
}

AttentionOutput composed_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const AttentionShape& shape, const at::Tensor& positions,
                                 at::ScalarType y_type) {
    const int64_t num_key_heads = k.size(1) / shape.head_dim;
    const at::Tensor scores = masked_scores(by_key_head(q, shape, num_key_heads),
                                            by_key_head(k, shape, num_key_heads), shape, positions);
    note_passes(scores, 2 + 2 + 1 + 2 + 2 + 1 + 2);  // scaled, masked; maxima, exponentials, sums, weights
    // The lowest score and a sum of 1 are for queries that see no key: the sum of any other is at least 1.
    const double lowest = std::numeric_limits<float>::lowest();
    const at::Tensor maxima = scores.amax(-1, /*keepdim=*/true).clamp_min_(lowest);
    const at::Tensor exponentials = (scores - maxima).exp_(), sums = exponentials.sum(-1, /*keepdim=*/true);
    const at::Tensor weights = exponentials / sums.clamp_min(1),
                     log_sum_exp = sums.log().add_(maxima).squeeze(-1);
    return {.y = rows(at::matmul(weights, by_key_head(v, shape, num_key_heads)), q, y_type),
            .log_sum_exp = log_sum_exp.flatten(1, 2)};
}

/// Whether no kernel computes this attention.
bool is_composed(const at::Tensor& q, const AttentionShape& shape, const at::Tensor& positions) {
    if (counts_as_gpu(q)) return !gpu_serves(q, shape, positions);
    return !has_kernels(q) && !is_plain(shape, positions);
}

/// y in the given type.
AttentionOutput with_output_type(AttentionOutput output, at::ScalarType y_type) {
    output.y = output.y.to(y_type);
    return output;
}

AttentionOutput unwatched(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const AttentionShape& shape, const at::Tensor& positions, at::ScalarType y_type) {
    const bool composes = is_composed(q, shape, positions);
    note_attention(WorkKind::Attention, q, k, shape, composes, is_for_flash(shape, positions));
    if (composes) return composed_forward(q, k, v, shape, positions, y_type);
    if (counts_as_gpu(q)) return with_output_type(gpu_attention(q, k, v, shape, positions), y_type);
    if (!has_kernels(q)) return with_output_type(plain_forward(q, k, v, shape), y_type);
    return cpu_attention(q, k, v, shape, positions, y_type);
}

/// raise_largest_scores() where no kernel does that or is wanted: in fp64 on a GPU, and by LibTorch's
/// operations.
void raise_composed(const at::Tensor& q, const at::Tensor& k, const AttentionShape& shape,
                    const at::Tensor& positions) {
    const auto split = [&](const at::Tensor& x) { return by_key_head(x, shape, k.size(1) / shape.head_dim); };
    const at::Tensor of_heads = masked_scores(split(q), split(k), shape, positions).amax({0, 3, 4}).flatten();
    at::Tensor largest = shape.watch.largest;
    at::maximum_out(largest, largest, at::where(of_heads.le(shape.watch.threshold), largest, of_heads));
}

/// attention() with y in `y_type`: that of q, or the accumulation type.
AttentionOutput attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const AttentionShape& shape, const at::Tensor& positions, at::ScalarType y_type) {
    AttentionOutput output = unwatched(q, k, v, shape, positions, y_type);
    if (!shape.watch.largest.defined()) return output;
    const bool has_kernel = !counts_as_gpu(q) || q.scalar_type() != at::kDouble;
    if (!has_kernel || path() == Path::Plain) {
        raise_composed(q, k, shape, positions);
    } else {
        raise_largest_scores(q, k, output.log_sum_exp, shape, positions);
    }
    return output;
}

}  // namespace

AttentionOutput attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const AttentionShape& shape, const at::Tensor& positions) {
    return attend(q, k, v, shape, positions, q.scalar_type());
}

AttentionOutput attention_part(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const AttentionShape& shape, const at::Tensor& positions) {
    return attend(q, k, v, shape, positions, accumulation_type(q.scalar_type()));
}

AttentionOutput merge_attention(const AttentionOutput& first, const AttentionOutput& second) {
    const at::Tensor log_sum_exp = at::logaddexp(first.log_sum_exp, second.log_sum_exp);
    // A part without a visible key has weight exp(-inf) = 0. Without any, the difference would be NaN.
    const at::Tensor total = log_sum_exp.clamp_min(std::numeric_limits<float>::lowest());
    const auto weighted = [&](const AttentionOutput& part) {
        const int64_t heads = part.log_sum_exp.size(1);
        const at::Tensor weight = (part.log_sum_exp - total).exp_().transpose(1, 2).unsqueeze(-1);
        return widened(part.y).view({weight.size(0), weight.size(1), heads, -1}) * weight;
    };
    return {.y = weighted(first).add_(weighted(second)).view(first.y.sizes()), .log_sum_exp = log_sum_exp};
}

AttentionGradient attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& v, const AttentionOutput& output,
                                     const AttentionShape& shape, const at::Tensor& positions) {
    const bool composes = is_composed(q, shape, positions);
    note_attention(WorkKind::AttentionBackward, q, k, shape, composes, is_for_flash(shape, positions));
    if (composes) return composed_attention_backward(dy, q, k, v, output, shape, positions);
    if (counts_as_gpu(q)) return gpu_attention_backward(dy, q, k, v, output, shape, positions);
    if (!has_kernels(q)) return plain_backward(dy, q, k, v, output, shape);
    return cpu_attention_backward(dy, q, k, v, output, shape, positions);
}

AttentionOutput composed_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const AttentionShape& shape, const at::Tensor& positions) {
    return composed_forward(q, k, v, shape, positions, q.scalar_type());
}

// dv = p^T dy, ds = scale p (dy v^T - sum(dy y)), dq = ds k, dk = ds^T q, where s = q k^T are the scores
// before scaling and p = softmax(scale s) the weights. dk and dv are summed over the heads that share a key.
AttentionGradient composed_attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                              const at::Tensor& v, const AttentionOutput& output,
                                              const AttentionShape& shape, const at::Tensor& positions) {
    const int64_t num_key_heads = k.size(1) / shape.head_dim;
    const auto split = [&](const at::Tensor& x) { return by_key_head(x, shape, num_key_heads); };
    const at::Tensor wide_q = split(q), wide_k = split(k), wide_dy = split(dy);
    const at::Tensor log_sum_exp =
        output.log_sum_exp.view({shape.num_sequences, num_key_heads, -1, shape.q_len, 1})
            .clamp_min(std::numeric_limits<float>::lowest());
    const at::Tensor weights = (masked_scores(wide_q, wide_k, shape, positions) - log_sum_exp).exp_();
    const at::Tensor projection = (wide_dy * split(output.y)).sum(-1, /*keepdim=*/true);
    const at::Tensor dscores =
        (at::matmul(wide_dy, split(v).transpose(-2, -1)) - projection).mul_(weights).mul_(shape.scale());
    note_passes(dscores, 2 + 2 + 2 + 2 + 2 + 3 + 2);  // scaled, masked; less the sums, weights; dscores
    const auto of_key_head = [](const at::Tensor& x) { return x.sum(2, /*keepdim=*/true); };
    return {rows(at::matmul(dscores, wide_k), q),
            rows(of_key_head(at::matmul(dscores.transpose(-2, -1), wide_q)), k),
            rows(of_key_head(at::matmul(weights.transpose(-2, -1), wide_dy)), v)};
}

}  // namespace argosy::ops
