#include "ops/attention.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

#include <tuple>

#include "ops/types.h"

// Shape suffixes: b sequences, s tokens of a sequence, h heads, d elements of a head.
namespace argosy::ops {
namespace {

constexpr double kNoDropout = 0;
constexpr bool kCausal = true;

at::Tensor heads_first(const at::Tensor& x, const AttentionShape& shape) {
    return x.view({shape.num_sequences, shape.seq_len, -1, shape.head_dim}).transpose(1, 2);  // bhsd
}

at::Tensor rows(const at::Tensor& x_bhsd) {
    return x_bhsd.transpose(1, 2).reshape({x_bhsd.size(0) * x_bhsd.size(2), -1});
}

/// Each key head as often as queries share it: the kernel wants as many key heads as query heads.
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

}  // namespace

AttentionOutput attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const AttentionShape& shape) {
    const int64_t times = q.size(1) / k.size(1);
    auto [y_bhsd, log_sum_exp] = at::_scaled_dot_product_flash_attention_for_cpu(
        heads_first(q, shape), repeat_heads(heads_first(k, shape), times),
        repeat_heads(heads_first(v, shape), times), kNoDropout, kCausal);
    return {rows(y_bhsd), log_sum_exp};
}

AttentionGradient attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& v, const AttentionOutput& output,
                                     const AttentionShape& shape) {
    const int64_t times = q.size(1) / k.size(1);
    auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        heads_first(dy, shape), heads_first(q, shape), repeat_heads(heads_first(k, shape), times),
        repeat_heads(heads_first(v, shape), times), heads_first(output.y, shape), output.log_sum_exp,
        kNoDropout, kCausal);
    return {rows(dq), rows(sum_repeated(dk.contiguous(), times)), rows(sum_repeated(dv.contiguous(), times))};
}

}  // namespace argosy::ops
