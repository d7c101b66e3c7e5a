// y = x / sqrt(mean(x^2) + eps) * w over the last dim. x and a written dx may be heads [tokens, heads, n] in
// columns of a wider matrix: no copy is made.
#pragma once

#include <ATen/core/Tensor.h>

namespace argosy::ops {

struct RmsNormOutput {
    at::Tensor y;
    at::Tensor inverse_rms;  // [..., 1], accumulation type; backward needs it beside x and w
};
RmsNormOutput rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

/// Returns x + delta and its norm, in one pass. The norm is computed from the rounded sum, so rms_norm(sum)
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
/// `residual`, if defined, is a gradient of x from another path (the residual stream), which is added to dx.
RmsNormGradient rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                  const at::Tensor& inverse_rms, const at::Tensor& residual = {});

/// The same without `residual`: writes dx to the given tensor and returns dw.
at::Tensor write_rms_norm_backward(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& x,
                                   const at::Tensor& weight, const at::Tensor& inverse_rms);

}  // namespace argosy::ops
