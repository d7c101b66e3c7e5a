// Sums over rows, and sums of squares.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <span>

namespace argosy::ops {

/// sum += the sum of the rows of x [rows, n]. `sum` is [n], in the accumulation type of x or wider.
void add_row_sum(at::Tensor& sum, const at::Tensor& x);

/// Returns [number of tensors]: the sum of squares of each tensor, computed in fp64. REQUIRES: at least one.
at::Tensor squared_norms(std::span<const at::Tensor> tensors);

// Sums over rows in an order that does not depend on the number of threads: every block of rows has a partial
// sum, and the partial sums are added in the order of the blocks.

inline constexpr int64_t kRowsPerBlock = 64;

/// sum += the sum over all rows. `add_rows(first_row, num_rows, partial)` adds the rows of a block to its
/// partial sum of `row_size` floats, and is called by several threads at once. REQUIRES: `sum` is [row_size]
/// in fp32, contiguous.
void add_row_blocks(const at::Tensor& sum, int64_t num_rows,
                    c10::function_ref<void(int64_t first_row, int64_t num_rows, float* partial)> add_rows);

}  // namespace argosy::ops
