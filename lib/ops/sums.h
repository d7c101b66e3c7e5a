// Sums over tensors.
#pragma once

#include <ATen/core/Tensor.h>

namespace argosy::ops {

/// sum += the sum of the rows of x [rows, n]. `sum` is [n], in the accumulation type of x or wider.
void add_row_sum(at::Tensor& sum, const at::Tensor& x);

/// The sum of the squares: a scalar in fp64, in which it is summed.
at::Tensor squared_norm(const at::Tensor& x);

}  // namespace argosy::ops
