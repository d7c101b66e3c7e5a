// y = x / sqrt(mean(x^2) + eps) * (w + weight_offset) over the last dim, computed in the accumulation type
// and rounded once. x, and the dx of write_rms_norm_backward(), may be views [tokens, heads, head_dim] of
// columns of a wider matrix. The kernels use such views without a copy.
#pragma once

#include <ATen/core/Tensor.h>

namespace argosy::ops {

/// A norm's weight w and its constants. Forward and backward take the same.
struct Norm {
    at::Tensor weight;
    double eps;
    double weight_offset = 0;
};

struct RmsNormOutput {
    at::Tensor y;
    at::Tensor inverse_rms;  // [..., 1], accumulation type; backward needs it beside x and the norm
};
/// `largest`: as of glu(), of y.
RmsNormOutput rms_norm(const at::Tensor& x, const Norm& norm, at::Tensor* largest = nullptr);

struct RmsNormGradient {
    at::Tensor dx;
    at::Tensor dw;  // accumulation type
};
/// Adds `residual`, if defined, to dx: the gradient of x that arrives through the residual stream.
RmsNormGradient rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const Norm& norm,
                                  const at::Tensor& inverse_rms, const at::Tensor& residual = {});

/// Like rms_norm_backward() without `residual`, but writes dx to the given tensor and returns dw.
at::Tensor write_rms_norm_backward(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& x,
                                   const Norm& norm, const at::Tensor& inverse_rms);

}  // namespace argosy::ops
