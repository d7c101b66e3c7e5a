// y = x / sqrt(mean(x^2) + eps) * w over the last dim. No copy is made of x, or of a dx that is written,
// where they are heads [tokens, heads, n] in columns of a wider matrix.
#pragma once

#include <ATen/core/Tensor.h>

namespace argosy::ops {

struct RmsNormOutput {
    at::Tensor y;
    at::Tensor inverse_rms;  // [..., 1], accumulation type: what backward needs beside x and w
};
RmsNormOutput rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

/// The norm of x + delta, and that sum, in one pass. The norm is of the sum as it is rounded: rms_norm(sum)
/// gives the same bits.
struct AddRmsNormOutput {
    at::Tensor sum;
    RmsNormOutput norm;
};
AddRmsNormOutput add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight,
                              double eps);

struct RmsNormGradient {
    at::Tensor dx;
    at::Tensor dw;  // accumulation type
};
/// `residual`, if defined, is a gradient that reaches x by another way, and joins dx.
RmsNormGradient rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                  const at::Tensor& inverse_rms, const at::Tensor& residual = {});

/// Likewise, with dx written where it is told; returns dw.
at::Tensor write_rms_norm_backward(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& x,
                                   const at::Tensor& weight, const at::Tensor& inverse_rms);

}  // namespace argosy::ops
