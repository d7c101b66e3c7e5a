#include "ops/gpu_casts.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "ops/gpu_float8.h"
#include "ops/work.h"

namespace argosy::ops {
uint8_t* bytes_of(const at::Tensor& matrix) {
    return matrix.defined() ? static_cast<uint8_t*>(matrix.data_ptr()) : nullptr;
}

bool casts_on_gpu(const at::Tensor& x) {
    return has_kernels(x) && (x.is_meta() ? product_target(x).capability > 0 : gpu::holds(x));
}

at::Tensor gpu_largest_magnitudes(const at::Tensor& x, Groups groups) {
    at::Tensor largest = at::zeros(
        {x.size(0) / std::max<int64_t>(groups.rows, 1), x.size(1) / std::max<int64_t>(groups.columns, 1)},
        x.options().dtype(at::kFloat));
    note_pass({x});
    if (x.is_meta()) return largest;
    with_element_type(x.scalar_type(), [&]<class T>(T) {
        gpu_kernels<T>().largest_magnitudes(
            {grouped<T>(x, groups), mutable_first_element<float>(largest), largest.stride(0)},
            gpu::current_stream());
    });
    return largest;
}

float* start_largest(at::Tensor* largest, const at::Tensor& x) {
    if (largest == nullptr || !casts_on_gpu(x)) return nullptr;
    *largest = at::zeros({1, 1}, x.options().dtype(at::kFloat));
    return x.is_meta() ? nullptr : mutable_first_element<float>(*largest);
}

CastScales gpu_scales(const at::Tensor& largest, float type_largest, double min_largest, bool power_of_two) {
    const CastScales made = {at::empty_like(largest), at::empty_like(largest)};
    if (largest.is_meta()) return made;
    kernels::gpu_table()->float8_scales({.count = largest.numel(),
                                         .largest = first_element<float>(largest),
                                         .type_largest = type_largest,
                                         .min_largest = min_largest,
                                         .power_of_two = power_of_two,
                                         .factors = mutable_first_element<float>(made.factors),
                                         .scales = mutable_first_element<float>(made.scale)},
                                        gpu::current_stream());
    return made;
}

Operand gpu_cast(const at::Tensor& x, Groups groups, const at::Tensor& factors, at::ScalarType type,
                 SumOver summed, const at::Tensor& values) {
    const at::TensorOptions options = x.options().dtype(type);
    // An emulated product reads either order. The second order is written in vain with Accumulation::Float32,
    // because the cast does not know how its product is summed.
    const cublas::Target target = product_target(x);
    const bool both =
        summed == SumOver::Either && target.multiplies_float8() && !target.reads_float8_in_either_order();
    at::Tensor by_rows = values, by_columns;
    if (summed != SumOver::Rows && !values.defined()) by_rows = at::empty(x.sizes(), options);
    if (summed == SumOver::Rows || both) by_columns = at::empty({x.size(1), x.size(0)}, options).t();
    Operand cast{by_rows.defined() ? by_rows : by_columns, {}, x.scalar_type()};
    if (both) cast.other_order = by_columns;
    note_pass({x, by_rows, by_columns});
    if (x.is_meta()) return cast;
    with_element_type(x.scalar_type(), [&]<class T>(T) {
        gpu_kernels<T>().cast_to_float8({.matrix = grouped<T>(x, groups),
                                         .factors = first_element<float>(factors),
                                         .factor_stride = factors.stride(0),
                                         .type = float8_type(cast.values),
                                         .values = bytes_of(by_rows),
                                         .value_stride = x.size(1)},
                                        {bytes_of(by_columns), x.size(0)}, gpu::current_stream());
    });
    return cast;
}

Operand gpu_cast_blocks(const at::Tensor& x, Groups groups, BlockScale block_scale, SumOver summed) {
    const auto [least, most] = std::minmax(groups.rows, groups.columns);
    ARGOSY_CHECK((least == 1 && (most == 32 || most == 128)) || (least == 128 && most == 128),
                 "blocks of {} x {} elements on a GPU", groups.rows, groups.columns);
    const at::TensorOptions options = x.options().dtype(at::ScalarType::Float8_e4m3fn);
    const bool by_rows = summed == SumOver::Columns;
    const Operand cast{
        by_rows ? at::empty(x.sizes(), options) : at::empty({x.size(1), x.size(0)}, options).t(),
        at::empty({x.size(0) / groups.rows, x.size(1) / groups.columns},
                  x.options().dtype(at::ScalarType::Float8_e8m0fnu)),
        x.scalar_type()};
    note_pass({x, cast.values, cast.scale});
    if (x.is_meta()) return cast;
    uint8_t* const values = bytes_of(cast.values);
    with_element_type(x.scalar_type(), [&]<class T>(T) {
        gpu_kernels<T>().cast_blocks({.matrix = grouped<T>(x, groups),
                                      .round_up = block_scale == BlockScale::Ceil,
                                      .exponents = bytes_of(cast.scale),
                                      .exponent_stride = cast.scale.size(1),
                                      .values = by_rows ? values : nullptr,
                                      .value_stride = x.size(1)},
                                     {by_rows ? nullptr : values, x.size(0)}, gpu::current_stream());
    });
    return cast;
}

}  // namespace argosy::ops
