#include "model/qk_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include "model/norm.h"
#include "ops/numerics.h"
#include "ops/work.h"

namespace argosy::model {
namespace {

// A norm whose row is cut over ranks: y = x r w, with r = 1 / sqrt(mean(x^2) + eps) and w with its offset.

at::Tensor sum_of_columns(const at::Tensor& x) { return x.sum(-1, /*keepdim=*/true); }

at::Tensor factors(const ops::Norm& norm) { return ops::widened(norm.weight) + norm.weight_offset; }

at::Tensor cut_norm(const at::Tensor& x, const ops::Norm& norm, const at::Tensor& inverse_rms) {
    at::Tensor y = ops::widened(x) * inverse_rms;
    ops::note_pass({y, y, y, y, y, x, x});
    return y.mul_(factors(norm)).to(x.scalar_type());
}

/// The sums from which `mean` of cut_norm_backward() follows.
at::Tensor weighted_sums(const at::Tensor& dy, const at::Tensor& x, const ops::Norm& norm,
                         const at::Tensor& inverse_rms) {
    return sum_of_columns((ops::widened(dy) * factors(norm)).mul_(ops::widened(x)).mul_(inverse_rms));
}

/// dx = r (dy w - n mean), where n = x r and mean = mean(dy w n). Returns dw, the sum over rows of dy n.
at::Tensor cut_norm_backward(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& x,
                             const ops::Norm& norm, const at::Tensor& inverse_rms, const at::Tensor& mean) {
    const at::Tensor wide_dy = ops::widened(dy), normed = ops::widened(x) * inverse_rms;
    // Each of the operations on wide matrices here and in weighted_sums() reads or writes as many elements.
    for (int i = 0; i < 7; ++i) ops::note_pass({normed, normed, normed});
    dx.copy_((wide_dy * factors(norm) - normed * mean).mul_(inverse_rms));
    return (wide_dy * normed).sum(0);
}

}  // namespace

at::Tensor QkNorms::grouped(const at::Tensor& x) const {
    const bool together = spec_.qk_norm == QkNorm::Together;
    return x.view({x.size(0), -1, together ? x.size(1) : spec_.head_dim});
}

// Ranks may have the same key heads. Each counts as often as a rank has it, in the sums and in the divisor;
// the mean is that of the heads. In the backward pass such ranks have parts of dy, and each subtracts an
// equal part of n mean.
QueriesAndKeys QkNorms::means(QueriesAndKeys sums, const QueriesAndKeys& x) const {
    at::Tensor both = at::cat({sums.q, sums.k}, /*dim=*/1);
    axis_.sum(both, "norms of q and k");
    const auto mean = [&](int64_t column, const at::Tensor& of) {
        return both.narrow(1, column, 1) / static_cast<double>(axis_.degree() * of.size(1));
    };
    return {mean(0, x.q), mean(1, x.k)};
}

QkNorms::Output QkNorms::forward(const QueriesAndKeys& x, const QueriesAndKeys& weights) const {
    const ops::Norm q = norm_of(spec_, weights.q), k = norm_of(spec_, weights.k);
    if (!is_cut()) {
        const auto [y_q, q_inverse] = ops::rms_norm(grouped(x.q), q);
        const auto [y_k, k_inverse] = ops::rms_norm(grouped(x.k), k);
        return {{y_q.view(x.q.sizes()), y_k.view(x.k.sizes())}, {q_inverse, k_inverse}};
    }
    const auto squares = [](const at::Tensor& part) { return sum_of_columns(ops::widened(part).square()); };
    QueriesAndKeys inverse = means({squares(x.q), squares(x.k)}, x);
    for (at::Tensor* mean : {&inverse.q, &inverse.k}) mean->add_(spec_.norm_eps).rsqrt_();
    return {{cut_norm(x.q, q, inverse.q), cut_norm(x.k, k, inverse.k)}, inverse};
}

QueriesAndKeys QkNorms::backward(const QueriesAndKeys& dx, const QueriesAndKeys& dy, const QueriesAndKeys& x,
                                 const QueriesAndKeys& weights, const QueriesAndKeys& inverse_rms) const {
    const ops::Norm q = norm_of(spec_, weights.q), k = norm_of(spec_, weights.k);
    if (!is_cut()) {
        const auto write = [&](const at::Tensor& to, const at::Tensor& from, const at::Tensor& input,
                               const ops::Norm& norm, const at::Tensor& inverse) {
            return ops::write_rms_norm_backward(grouped(to), grouped(from), grouped(input), norm, inverse);
        };
        return {write(dx.q, dy.q, x.q, q, inverse_rms.q), write(dx.k, dy.k, x.k, k, inverse_rms.k)};
    }
    const QueriesAndKeys mean =
        means({weighted_sums(dy.q, x.q, q, inverse_rms.q), weighted_sums(dy.k, x.k, k, inverse_rms.k)}, x);
    return {cut_norm_backward(dx.q, dy.q, x.q, q, inverse_rms.q, mean.q),
            cut_norm_backward(dx.k, dy.k, x.k, k, inverse_rms.k, mean.k)};
}

}  // namespace argosy::model
