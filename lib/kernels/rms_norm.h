// y = x / sqrt(mean(x^2) + eps) * weight, row by row.
//
// Per element of a row that stays in cache: forward reads x (and the residual) and writes y (and the sum), 3
// FLOP; backward reads dy, x and the residual's gradient and writes dx, 8 FLOP: both are bound by memory.
#pragma once

#include <cstdint>

namespace argosy::kernels {

template <class T>
struct RmsNorm {
    int64_t num_rows, row_size;
    const T* x;
    const T* residual;  // added to x before the norm; null: nothing
    T* sum;             // x + residual, rounded; the norm is of what was rounded. Null where residual is
    const T* weight;
    float eps;
    T* y;
    float* inverse_rms;  // of each row
};

template <class T>
struct RmsNormBackward {
    int64_t num_rows, row_size;
    const T* dy;
    const T* x;
    const T* weight;
    const float* inverse_rms;
    const T* residual;  // a gradient that is added to dx once that is rounded; null: none
    T* dx;
    float* dweight;  // added to
};

}  // namespace argosy::kernels
