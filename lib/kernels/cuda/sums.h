// Sums over rows in two steps: blocks write sums of their own rows, `partial` [.., row_size], and these are
// added in order.
#pragma once

#include "kernels/sums.h"
#include "kernels/types.h"

namespace argosy::kernels::cuda {

template <class T>
int64_t sum_rows_scratch_bytes(const SumRows<T>& args);
template <class T>
void sum_rows(const SumRows<T>& args, void* scratch, GpuStream stream);

/// sums[i] += partial[row][i], by a kernel for few long or short rows.
void add_partial_rows(const float* partial, int64_t num_rows, int64_t row_size, float* sums,
                      GpuStream stream);

}  // namespace argosy::kernels::cuda
