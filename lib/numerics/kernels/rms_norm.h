// Arguments of the RMSNorm kernels, forward and backward: y = x / sqrt(mean(x^2) + eps) * w in each row,
// where w = weight + weight_offset. This sum is in fp32, so an offset of 1 (Gemma) loses no bits of a small
// weight. The offset does not change the weight's gradient.
//
// Cost per element, if a row stays in cache: forward reads x, writes y and takes 3 FLOP; backward reads dy, x
// and the residual's gradient, writes dx and takes 8 FLOP. Both are bound by memory.
#pragma once

#include <cstdint>

namespace argosy::kernels {

/// Memory layout of rows that are in groups, such as the heads in some columns of a matrix. The rows of a
/// group are adjacent, and `gap` elements are between two groups. The pointer to the data points at row
/// number `first_row` (from 0) of a group.
struct RowGroups {
    int64_t rows_per_group = 1, gap = 0, first_row = 0;
};

template <class T>
struct RmsNorm {
    int64_t num_rows, row_size;
    const T* x;
    const T* weight;
    float eps;
    T* y;
    float* inverse_rms;  // of each row
    RowGroups x_groups = {};
    float weight_offset = 0;
};

template <class T>
struct RmsNormBackward {
    int64_t num_rows, row_size;
    const T* dy;
    const T* x;
    const T* weight;
    const float* inverse_rms;
    const T* residual;  // gradient that is added to the rounded dx; null: none
    T* dx;
    float* dweight;  // the weight's gradient is added to it
    RowGroups x_groups = {}, dx_groups = {};
    float weight_offset = 0;
};

}  // namespace argosy::kernels
