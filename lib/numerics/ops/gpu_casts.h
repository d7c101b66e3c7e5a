// Casts to float8 on a GPU. Products need the terms of each sum side by side, so a cast for products that sum
// over dim 0 is stored column-major, and one for products over either dim both ways, unless the GPU's
// products read either order (cublas::Target).
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/float8.h"
#include "ops/float8.h"
#include "ops/kernel_calls.h"

namespace argosy::ops {

/// Rows and columns of the groups of elements that share a scale.
struct Groups {
    int64_t rows, columns;
};

/// REQUIRES: x has dense rows.
template <class T>
kernels::Grouped<T> grouped(const at::Tensor& x, Groups groups) {
    return {first_element<T>(x), x.size(0), x.size(1), x.stride(0), groups.rows, groups.columns};
}

/// The elements of a matrix in float8; null without one.
uint8_t* bytes_of(const at::Tensor& matrix);

/// Whether this file computes casts of x: it is on a GPU, or counts as such.
bool casts_on_gpu(const at::Tensor& x);

/// The largest magnitudes of groups, in fp32, as kernels::LargestMagnitudes. REQUIRES: casts_on_gpu, dense
/// rows.
at::Tensor gpu_largest_magnitudes(const at::Tensor& x, Groups groups);

/// For a GPU's kernel that raises *largest to the largest magnitude of its result: makes *largest a zero
/// beside x and returns its place. Null if `largest` is null or casts_on_gpu(x) is false; *largest stays
/// undefined.
float* start_largest(at::Tensor* largest, const at::Tensor& x);

/// The factors and scales of groups, as kernels::Float8Scales. REQUIRES: casts_on_gpu(largest), contiguous.
struct CastScales {
    at::Tensor factors, scale;
};
CastScales gpu_scales(const at::Tensor& largest, float type_largest, double min_largest, bool power_of_two);

/// x times the factor of its group, rounded to `type`, without the scales: stored for products that sum over
/// dim `summed`. `values`, for sums over columns, is written instead of new memory; undefined: new memory.
/// REQUIRES: `factors` are contiguous and on the GPU, `values` is contiguous.
Operand gpu_cast(const at::Tensor& x, Groups groups, const at::Tensor& factors, at::ScalarType type,
                 SumOver summed, const at::Tensor& values = {});

/// Casts x in blocks to E4M3, with scales, as kernels::CastBlocks: stored for products that sum over dim
/// `summed`. REQUIRES: casts_on_gpu(x), dense rows.
Operand gpu_cast_blocks(const at::Tensor& x, Groups groups, BlockScale block_scale, SumOver summed);

}  // namespace argosy::ops
