// Sums over rows, and of squares.
#pragma once

#include <cstdint>

namespace argosy::kernels {

/// sums[i] += x[row][i], row by row.
template <class T>
struct SumRows {
    int64_t num_rows, row_size;
    int64_t row_stride;  // elements from a row to the next
    const T* x;
    float* sums;
};

/// The sum of squares in fp64, where squares of floats are exact and none overflows: the same bits on every
/// instruction set.
struct SquaredNorm {
    int64_t count;
    const float* x;
};

}  // namespace argosy::kernels
