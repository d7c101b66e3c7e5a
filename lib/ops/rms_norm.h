// y = x / sqrt(mean(x^2) + eps) * w over the last dim.
#pragma once

#include <ATen/core/Tensor.h>

namespace argosy::ops {

struct RmsNormOutput {
    at::Tensor y;
    at::Tensor inverse_rms;  // [..., 1], accumulation type: what backward needs beside x and w
};
RmsNormOutput rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

struct RmsNormGradient {
    at::Tensor dx;
    at::Tensor dw;  // accumulation type
};
RmsNormGradient rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                  const at::Tensor& inverse_rms);

}  // namespace argosy::ops
