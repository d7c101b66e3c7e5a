#include "ops/float8.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>

#include "base/element_type.h"
#include "base/error.h"
#include "ops/gpu_casts.h"
#include "ops/gpu_float8.h"
#include "ops/kernel_calls.h"
#include "ops/work.h"

namespace argosy::ops {
namespace {

constexpr auto kE4M3 = at::ScalarType::Float8_e4m3fn, kE5M2 = at::ScalarType::Float8_e5m2;
constexpr auto kE8M0 = at::ScalarType::Float8_e8m0fnu;
constexpr int kScaleBias = 127, kStoredNaN = 255;  // of E8M0

constexpr Recipe same_cast(const Cast& cast) { return {{cast, cast}, {cast, cast}, {cast, cast}}; }

constexpr Cast kTensor{kE4M3, Scaling::Matrix}, kTensorGradient{kE5M2, Scaling::Matrix};
constexpr Cast kLine{kE4M3, Scaling::Line, /*power_of_two=*/true};
constexpr Cast kTensorPower{kE4M3, Scaling::Matrix, /*power_of_two=*/true};
constexpr Cast kLongBlock{kE4M3, Scaling::Block, true, BlockScale::Ceil, /*block_size=*/128};
constexpr Cast kSquare{kE4M3, Scaling::Block, true, BlockScale::Ceil, 128, /*square_blocks=*/true};

constexpr Recipe emulate(Recipe recipe) {
    recipe.accumulation = Accumulation::Float32;
    return recipe;
}

struct NamedRecipe {
    std::string_view name;
    Recipe native;
    Recipe emulated = emulate(native);
};
constexpr NamedRecipe kRecipes[] = {
    {"tensorwise", {{kTensor, kTensor}, {kTensorGradient, kTensor}, {kTensorGradient, kTensor}}},
    {"rowwise", same_cast(kLine)},
    {"rowwise_with_gw_hp", {{kLine, kLine}, {kLine, kTensorPower}, {}}},
    {"blockwise", {{kLongBlock, kSquare}, {kLongBlock, kSquare}, {kLongBlock, kLongBlock}}},
    {"mxfp8_cublas", same_cast({kE4M3, Scaling::Block, true, BlockScale::Floor})},
    {"mxfp8_cublas_rceil", same_cast({kE4M3, Scaling::Block, true, BlockScale::Ceil})},
};

float largest_number(at::ScalarType type) {
    return type == kE4M3 ? Float8E4M3::value(Float8E4M3::kLargest) : Float8E5M2::value(Float8E5M2::kLargest);
}

Groups groups_of(const at::Tensor& x, const Cast& cast, SumOver summed) {
    if (cast.scaling == Scaling::Matrix) return {x.size(0), x.size(1)};
    if (cast.square_blocks) return {cast.block_size, cast.block_size};
    const bool rows = summed == SumOver::Rows;
    const int64_t size = cast.scaling == Scaling::Line ? x.size(rows ? 0 : 1) : cast.block_size;
    return rows ? Groups{size, 1} : Groups{1, size};
}

/// A view of x in which for_groups() of one element for each group broadcasts.
at::Tensor by_groups(const at::Tensor& x, Groups groups) {
    return x.view({x.size(0) / groups.rows, groups.rows, x.size(1) / groups.columns, groups.columns});
}
at::Tensor for_groups(const at::Tensor& factors) { return factors.unsqueeze(1).unsqueeze(3); }

template <class T>
void write_largest(const at::Tensor& largest, const at::Tensor& x, Groups groups) {
    const int64_t grain = groups.rows == 1 ? min_rows_per_thread(x.size(1)) : min_rows_per_thread(x.size(0));
    const int dim = groups.rows == 1 ? 0 : 1;  // columns of groups of rows are divided over the threads
    run_on_parts(x, x.size(dim), grain, [&](int64_t begin, int64_t end) {
        kernels::table().of<T>().largest_magnitudes(
            {.matrix = grouped<T>(x.narrow(dim, begin, end - begin), groups),
             .largest = mutable_first_element<float>(largest.narrow(dim, begin, end - begin)),
             .largest_stride = largest.stride(0)});
    });
}

/// The largest magnitude of each group, in fp32.
at::Tensor largest_of_groups(const at::Tensor& x, Groups groups) {
    if (!has_kernels(x)) return by_groups(x.contiguous(), groups).abs().amax({1, 3}).to(at::kFloat);
    if (casts_on_gpu(x)) return gpu_largest_magnitudes(with_dense_rows(x), groups);
    if (groups.rows > 1 && groups.columns > 1)  // rows of the groups, then LibTorch joins these few numbers
        return by_groups(largest_of_groups(x, {1, groups.columns}), {groups.rows, 1}).amax({1, 3});
    at::Tensor largest =
        at::empty({x.size(0) / groups.rows, x.size(1) / groups.columns}, x.options().dtype(at::kFloat));
    note_pass({x});
    const at::Tensor rows = has_dense_rows(x) ? x : x.contiguous();
    with_element_type(x.scalar_type(), [&]<class T>(T) { write_largest<T>(largest, rows, groups); });
    return largest;
}

template <class T>
void write_cast(const at::Tensor& values, const at::Tensor& x, Groups groups, const at::Tensor& factors) {
    const int64_t step = groups.rows < x.size(0) ? groups.rows : 1;  // a thread gets whole blocks
    run_on_parts(x, x.size(0) / step, min_rows_per_thread(step * x.size(1)), [&](int64_t begin, int64_t end) {
        const int64_t first = begin * step, count = (end - begin) * step;
        kernels::table().of<T>().cast_to_float8(
            {.matrix = grouped<T>(x.narrow(0, first, count), groups),
             .factors = first_element<float>(factors) + first / groups.rows * factors.stride(0),
             .factor_stride = factors.stride(0),
             .type = float8_type(values),
             .values = static_cast<uint8_t*>(values.mutable_data_ptr()) + first * values.stride(0),
             .value_stride = values.stride(0)});
    });
}

/// x times the factor of its group, rounded to `type`, in `values` or new memory, and undefined scales. On a
/// GPU new memory is stored for products that sum over dim `summed`.
Operand scaled_and_rounded(const at::Tensor& x, Groups groups, const at::Tensor& factors, at::ScalarType type,
                           SumOver summed, at::Tensor values = {}) {
    if (casts_on_gpu(x)) return gpu_cast(with_dense_rows(x), groups, factors, type, summed, values);
    if (!values.defined()) values = at::empty(x.sizes(), x.options().dtype(type));
    if (!has_kernels(x)) {
        const float largest = largest_number(type);
        const at::Tensor numbers = by_groups(x.contiguous(), groups).to(at::kFloat).mul(for_groups(factors));
        return values.copy_(numbers.clamp_(-largest, largest).view(x.sizes()));
    }
    note_pass({x, values});
    const at::Tensor rows = has_dense_rows(x) ? x : x.contiguous();
    with_element_type(x.scalar_type(), [&]<class T>(T) { write_cast<T>(values, rows, groups, factors); });
    return values;
}

/// 2 to the power of integers that are exponents of normal numbers of fp32.
at::Tensor power_of_two(const at::Tensor& exponents) {
    return ((exponents + 127) * (1 << 23)).to(at::kInt).view(at::kFloat);
}

/// The exponents of normal positive numbers of fp32: the integers e with 2^e <= x < 2^(e + 1).
at::Tensor exponent_of(const at::Tensor& x) { return x.view(at::kInt).bitwise_right_shift(23) - 127; }
/// Adds 1 where x is no power of two.
at::Tensor ceil_exponent_of(const at::Tensor& x) {
    return exponent_of(x) + x.view(at::kInt).bitwise_and((1 << 23) - 1).ne(0).to(at::kInt);
}

/// The factors with which the largest magnitudes become the largest number of the type, and the scales.
CastScales scales_of_cast(const at::Tensor& largest, const Cast& cast) {
    constexpr double kSmallest = 1e-12;  // so that a matrix of zeros has a finite factor
    const float number = largest_number(cast.type);
    if (casts_on_gpu(largest)) return gpu_scales(largest.contiguous(), number, kSmallest, cast.power_of_two);
    if (largest.is_meta()) return {at::empty_like(largest), at::empty_like(largest)};
    at::Tensor factors = (number / largest.to(at::kDouble).clamp_min(kSmallest)).to(at::kFloat);
    if (cast.power_of_two) factors = power_of_two(exponent_of(factors));
    return {factors, factors.reciprocal()};
}

/// The exponents of the scales of blocks, as E8M0 stores them. A block with a NaN or an infinity has the NaN
/// scale, so all of its numbers are NaN. torchao 0.18 gives a block with an infinity a finite scale, with
/// which the infinity becomes 448 times that scale.
at::Tensor stored_exponents(const at::Tensor& largest, const Cast& cast) {
    const double number = largest_number(cast.type);
    const at::Tensor exponents = cast.block_scale == BlockScale::Ceil
                                     ? ceil_exponent_of(largest / number)
                                     : exponent_of(largest) - std::ilogb(number);
    return at::where(largest.isfinite(), exponents.clamp(-kScaleBias, kScaleBias) + kScaleBias, kStoredNaN);
}

CastScales scales_of_blocks(const at::Tensor& largest, const Cast& cast) {
    const CastScales made = {at::empty_like(largest),
                             at::empty_like(largest, largest.options().dtype(kE8M0))};
    if (largest.is_meta()) return made;
    const at::Tensor exponents = stored_exponents(largest, cast);
    // The smallest scale, 2^-127, is not a normal number of fp32; it is that of blocks of about zeros.
    made.factors.copy_(power_of_two((kScaleBias - exponents).clamp_max(kScaleBias - 1)));
    made.scale.view(at::kByte).copy_(exponents);
    return made;
}

Operand cast_blocks(const at::Tensor& x, const Cast& cast, SumOver summed) {
    const Groups groups = groups_of(x, cast, summed);
    ARGOSY_CHECK(x.size(0) % groups.rows == 0 && x.size(1) % groups.columns == 0,
                 "[{}, {}] is not in blocks of {}", x.size(0), x.size(1), cast.block_size);
    if (casts_on_gpu(x)) return gpu_cast_blocks(with_dense_rows(x), groups, cast.block_scale, summed);
    const auto [factors, scale] = scales_of_blocks(largest_of_groups(x, groups), cast);
    return {scaled_and_rounded(x, groups, factors, cast.type, summed).values, scale, x.scalar_type()};
}

at::Tensor widened_values(const at::Tensor& values) {
    if (!values.is_cpu() && !values.is_meta()) return values.to(at::kBFloat16);
    const at::Tensor dense = values.contiguous();
    at::Tensor wide = at::empty(values.sizes(), values.options().dtype(at::kBFloat16));
    note_pass({values, wide});
    run_on_parts(wide, wide.numel(), kMinElementsPerThread, [&](int64_t begin, int64_t end) {
        kernels::table().widen_float8(
            {.count = end - begin,
             .from = static_cast<const uint8_t*>(dense.const_data_ptr()) + begin,
             .type = float8_type(values),
             .to = static_cast<kernels::BFloat16*>(wide.mutable_data_ptr()) + begin});
    });
    return wide;
}

}  // namespace

const Recipe* find_recipe(std::string_view name, Accumulation accumulation) {
    const auto found = std::ranges::find(kRecipes, name, &NamedRecipe::name);
    if (found == std::end(kRecipes)) return nullptr;
    return accumulation == Accumulation::Native ? &found->native : &found->emulated;
}

Operand::Operand(const at::Tensor& matrix)
    : values(matrix), type(matrix.defined() ? matrix.scalar_type() : at::ScalarType::Undefined) {}

Operand Operand::narrow(int dim, int64_t begin, int64_t count) const {
    Operand part = *this;
    part.values = values.narrow(dim, begin, count);
    if (!scaled() || scale.size(dim) == 1) {
        if (other_order.defined()) part.other_order = other_order.narrow(dim, begin, count);
        return part;
    }
    const int64_t shared = values.size(dim) / scale.size(dim);  // elements with one scale, along dim
    ARGOSY_CHECK(begin % shared == 0 && count % shared == 0, "elements {} to {} are no blocks of {}", begin,
                 begin + count, shared);
    part.scale = scale.narrow(dim, begin / shared, count / shared);
    part.other_order.reset();
    return part;
}

bool divides(const Cast& cast, int64_t size) {
    return cast.scaling != Scaling::Block || size % cast.block_size == 0;
}

at::Tensor largest_magnitude(const at::Tensor& x) { return largest_of_groups(x, {x.size(0), x.size(1)}); }

at::Tensor for_transfer(const at::Tensor& x) { return x.element_size() == 1 ? x.view(at::kByte) : x; }

Operand cast(const Operand& original, const Cast& cast, SumOver summed, const at::Tensor& largest) {
    if (cast.scaling == Scaling::None) return original;
    if (original.scaled()) return summed == SumOver::Rows ? for_sums_over_rows(original) : original;
    const at::Tensor& x = original.values;
    ARGOSY_CHECK(cast.scaling != Scaling::Matrix || largest.defined(), "no largest magnitude for one scale");
    ARGOSY_CHECK(cast.scaling == Scaling::Matrix || summed != SumOver::Either,
                 "several scales for either dim");
    if (cast.scaling == Scaling::Block) return cast_blocks(x, cast, summed);
    const Groups groups = groups_of(x, cast, summed);
    const auto [factors, scale] =
        scales_of_cast(cast.scaling == Scaling::Line ? largest_of_groups(x, groups) : largest, cast);
    Operand operand = scaled_and_rounded(x, groups, factors, cast.type, summed);
    operand.scale = scale;
    operand.type = x.scalar_type();
    operand.scaled_by_rows = cast.scaling == Scaling::Line && summed == SumOver::Columns;
    return operand;
}

void cast_into(const Operand& kept, const at::Tensor& x, const Cast& cast, const at::Tensor& largest) {
    const auto [factors, scale] = scales_of_cast(largest, cast);
    scaled_and_rounded(x, groups_of(x, cast, SumOver::Columns), factors, cast.type, SumOver::Columns,
                       kept.values);
    kept.scale.copy_(scale);
}

at::Tensor widened_to_bf16(const Operand& operand) {
    const at::Tensor &values = operand.values, &scale = operand.scale;
    if (!values.is_contiguous() && values.t().is_contiguous())
        return widened_to_bf16(operand.transposed()).t();
    at::Tensor wide = widened_values(values);
    if (scale.scalar_type() == kE8M0) {
        const Groups groups{wide.size(0) / scale.size(0), wide.size(1) / scale.size(1)};
        by_groups(wide, groups).mul_(for_groups(scale.to(at::kFloat)));
    }
    return wide;
}

}  // namespace argosy::ops
