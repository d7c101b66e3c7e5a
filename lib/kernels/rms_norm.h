// y = x / sqrt(mean(x^2) + eps) * weight, row by row.
//
// Cost for each element of a row that stays in cache: forward reads x (and the residual), writes y (and the
// sum) and takes 3 FLOP; backward reads dy, x and the residual's gradient, writes dx and takes 8 FLOP. Both
// are bound by memory.
#pragma once

#include <cstdint>

namespace argosy::kernels {

/// Describes rows that are not all contiguous, such as the heads in some columns of a matrix: `gap` elements
/// are skipped after every `every` rows, counted from `first` rows before the row that the pointer points at.
struct Gaps {
    int64_t every = 1, gap = 0, first = 0;
};

template <class T>
struct RmsNorm {
    int64_t num_rows, row_size;
    const T* x;
    const T* residual;  // added to x before the norm; null: nothing
    T* sum;             // x + residual, rounded; the norm is that of the rounded sum. Null where residual is
    const T* weight;
    float eps;
    T* y;
    float* inverse_rms;  // of each row
    Gaps x_gaps = {};
};

template <class T>
struct RmsNormBackward {
    int64_t num_rows, row_size;
    const T* dy;
    const T* x;
    const T* weight;
    const float* inverse_rms;
    const T* residual;  // a gradient that is added to the rounded dx; null: none
    T* dx;
    float* dweight;  // the gradient is added to it
    Gaps x_gaps = {}, dx_gaps = {};
};

}  // namespace argosy::kernels
