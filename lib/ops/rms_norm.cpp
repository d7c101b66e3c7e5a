#include "ops/rms_norm.h"

#include <ATen/TensorOperators.h>

#include "ops/types.h"

namespace argosy::ops {

RmsNormOutput rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
    const at::Tensor wide = widened(x);
    at::Tensor inverse_rms = wide.square().mean(-1, /*keepdim=*/true).add_(eps).rsqrt_();
    at::Tensor y = (wide * inverse_rms).mul_(widened(weight));
    return {y.to(x.scalar_type()), std::move(inverse_rms)};
}

// With r = inverse_rms and n = x r:  dx = r (dy w - n mean(dy w n)),  dw = sum over rows of dy n.
RmsNormGradient rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                  const at::Tensor& inverse_rms) {
    const at::Tensor wide_dy = widened(dy);
    const at::Tensor normed = widened(x) * inverse_rms;
    const at::Tensor weighted = wide_dy * widened(weight);
    const at::Tensor projection = (weighted * normed).mean(-1, /*keepdim=*/true);
    const at::Tensor dx = (weighted - normed * projection).mul_(inverse_rms);
    const at::Tensor dw = (wide_dy * normed).reshape({-1, x.size(-1)}).sum(0);
    return {dx.to(x.scalar_type()), dw};
}

}  // namespace argosy::ops
