// A factor of a matrix product, anywhere in memory.
#pragma once

#include <cstdint>

namespace argosy::kernels {

/// A lane is a row of A or a column of B; k is the dim that the product sums over. Element k of lane l is
/// data[l * lane_stride + k * k_stride]. Any strides work; a stride of 1 is fast.
template <class T>
struct Operand {
    const T* data;
    int64_t lane_stride, k_stride;
};

}  // namespace argosy::kernels
