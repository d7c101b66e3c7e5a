// Matrix products of a linear layer y = x W^T, each gradient apart. Shapes: x [tokens, in], W [out, in], y
// [tokens, out].
#pragma once

#include <ATen/core/Tensor.h>

namespace argosy::ops {

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight);

/// y W: the gradient of x.
at::Tensor linear_input_gradient(const at::Tensor& dy, const at::Tensor& weight);

/// sum += dy W.
void add_linear_input_gradient(at::Tensor& sum, const at::Tensor& dy, const at::Tensor& weight);

/// dW = dy^T x, written to `out` (accumulate = false) or added to it. `out` may be wider than the operands.
void linear_weight_gradient(at::Tensor& out, const at::Tensor& dy, const at::Tensor& x, bool accumulate);

}  // namespace argosy::ops
