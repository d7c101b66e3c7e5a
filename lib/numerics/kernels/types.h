// Types that the kernels' arguments share: element types as they lie in memory (kernels compute in float),
// the handle of a GPU's stream, and a factor of a matrix product.
#pragma once

#include <cstdint>

struct CUstream_st;  // CUDA's name for what a cudaStream_t points to

namespace argosy::kernels {

struct BFloat16 {
    uint16_t bits;
};

using GpuStream = CUstream_st*;

/// A factor of a matrix product A B. A lane is a row of A or a column of B; k is the dim over which the
/// product sums. Element k of lane l is data[l * lane_stride + k * k_stride]. Any strides work; a stride of 1
/// is fast.
template <class T>
struct Operand {
    const T* data;
    int64_t lane_stride, k_stride;
};

}  // namespace argosy::kernels
