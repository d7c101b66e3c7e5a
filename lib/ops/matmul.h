// Matrix products of a linear layer y = x W^T, each gradient apart. Shapes: x [tokens, in], W [out, in], y
// [tokens, out]; any strides.
//
// Own kernels for processors sum in fp32 and round once, and no element depends on which rows, columns or
// threads it is computed with: a part of the tokens gives bit for bit that part of the result. On a GPU a sum
// of several products is rounded after each.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace argosy::ops {

/// Weights of layers that read the same x, or their biases; the layers' outputs are columns of one matrix.
/// Where the parts lie one behind the other in memory, `all` is them as one tensor, and one product serves
/// for all; else it is undefined.
struct Stack {
    std::vector<at::Tensor> parts = {};  // none: layers without biases
    at::Tensor all = {};

    int64_t num_rows() const;
};

/// With `bias` [out], if defined, added to every row.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});
at::Tensor linear(const at::Tensor& x, const Stack& weight, const Stack& bias);

/// dy W: the gradient of x.
at::Tensor linear_input_gradient(const at::Tensor& dy, const at::Tensor& weight);

/// The gradient of an x that several layers read. A processor's bits do not depend on where the parts lie.
at::Tensor linear_input_gradient(const at::Tensor& dy, const Stack& weight);

/// dy W, written to `out`, rows that lie together.
void write_linear_input_gradient(const at::Tensor& out, const at::Tensor& dy, const at::Tensor& weight);

/// dW = dy^T x, written to `out` (accumulate = false) or added to it. `out` may be wider than the operands.
void linear_weight_gradient(at::Tensor& out, const at::Tensor& dy, const at::Tensor& x, bool accumulate);

}  // namespace argosy::ops
