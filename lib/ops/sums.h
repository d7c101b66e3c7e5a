// Sums over tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

namespace argosy::ops {

/// sum += the sum of the rows of x [rows, n]. `sum` is [n], in the accumulation type of x or wider.
void add_row_sum(at::Tensor& sum, const at::Tensor& x);

/// Returns [number of tensors]: the sum of squares of each tensor, computed in fp64. REQUIRES: at least one.
at::Tensor squared_norms(std::span<const at::Tensor> tensors);

}  // namespace argosy::ops
