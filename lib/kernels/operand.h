// A factor of a matrix product, anywhere in memory.
#pragma once

#include <cstdint>

namespace argosy::kernels {

/// Its lanes are the rows of A or the columns of B; k is the dim that the product sums over. Element k of
/// lane l is data[l * lane_stride + k * k_stride]: any strides, fast where one of them is 1.
template <class T>
struct Operand {
    const T* data;
    int64_t lane_stride, k_stride;
};

}  // namespace argosy::kernels
