// Sums over rows in two launches: blocks write the sums of their own rows to `partial` [.., row_size], and a
// second launch adds these in order.
#pragma once

#include "kernels/sums.h"
#include "kernels/types.h"

namespace argosy::kernels::cuda {

template <class T>
int64_t sum_rows_scratch_bytes(const SumRows<T>& args);
template <class T>
void sum_rows(const SumRows<T>& args, void* scratch, GpuStream stream);

/// sums[i] += partial[row][i], by a kernel for few rows, long or short.
void add_partial_rows(const float* partial, int64_t num_rows, int64_t row_size, float* sums,
                      GpuStream stream);

}  // namespace argosy::kernels::cuda
