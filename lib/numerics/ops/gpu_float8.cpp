#include "ops/gpu_float8.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "gpu/element_type.h"
#include "ops/gpu_casts.h"
#include "ops/kernel_calls.h"
#include "ops/matmul.h"
#include "ops/planned_gpu.h"
#include "ops/work.h"

namespace argosy::ops {
namespace {

constexpr auto kExponents = at::ScalarType::Float8_e8m0fnu;
constexpr int kOldestVersion = 130000;  // of cuBLASLt for which this program is built
constexpr int64_t kTileLines = 128, kTileBlocks = 4, kLinesOfWord = 32;  // of the exponents of blocks
constexpr int64_t kTermsOfExponent = 32;
constexpr int64_t kTermsOfLongBlock = 128, kSquareBlocks = 4;  // of cublas::ScaleMode::Block128 and SquareB

/// The mode of operands in blocks of `num_terms` terms. Only Hopper has scales for blocks of 128 terms; it
/// has none for smaller blocks.
cublas::ScaleMode mode_of_blocks(int64_t num_terms, bool right_is_square, const cublas::Target& target) {
    if (num_terms != kTermsOfLongBlock || target.capability != 90) return cublas::ScaleMode::Block;
    return right_is_square ? cublas::ScaleMode::SquareB : cublas::ScaleMode::Block128;
}

cublas::ScaleMode scale_mode_of(const Cast& cast, const cublas::Target& target) {
    switch (cast.scaling) {
        case Scaling::Block:
            return mode_of_blocks(cast.block_size, cast.square_blocks, target);
        case Scaling::Line:
            return cublas::ScaleMode::Line;
        default:
            return cublas::ScaleMode::Matrix;
    }
}

/// Both operands have the finer mode: a scale of a matrix is that of each of its lines, too, and the scale of
/// a square in `a` that of each of its lines.
cublas::ScaleMode scale_mode_of(const Operand& a, const Operand& b, const cublas::Target& target) {
    if (a.scale.scalar_type() == kExponents) {
        return mode_of_blocks(a.values.size(1) / a.scale.size(1), b.scale.size(1) < b.values.size(1), target);
    }
    return a.scale.numel() > 1 || b.scale.numel() > 1 ? cublas::ScaleMode::Line : cublas::ScaleMode::Matrix;
}

bool has_aligned_address(const at::Tensor& x) {
    return x.is_meta() || reinterpret_cast<uintptr_t>(x.const_data_ptr()) % cublas::kFloat8Alignment == 0;
}

/// The scales of `count` lines, one after the other.
at::Tensor scales_of_lines(const at::Tensor& scale, int64_t count) {
    const at::Tensor scales = scale.flatten().expand({count}).contiguous();
    return has_aligned_address(scales) ? scales : scales.clone();
}

/// The exponents of blocks, once for each line.
at::Tensor exponents_of_lines(const Operand& lines) {
    const at::Tensor exponents = lines.scale.view(at::kByte);
    const int64_t shared = lines.values.size(0) / exponents.size(0);
    return shared == 1 ? exponents : exponents.repeat_interleave(shared, 0);
}

/// The same, and once for each 32 terms.
at::Tensor exponents_of(const Operand& lines) {
    const int64_t terms = lines.values.size(1) / lines.scale.size(1);
    const at::Tensor exponents = exponents_of_lines(lines);
    return terms == kTermsOfExponent ? exponents : exponents.repeat_interleave(terms / kTermsOfExponent, 1);
}

/// Exponents [lines, blocks] in the tiles of cublas::ScaleMode::Block.
at::Tensor in_tiles(const at::Tensor& exponents) {
    const int64_t lines = exponents.size(0), blocks = exponents.size(1);
    const at::Tensor padded = at::zeros({round_up(lines, kTileLines), round_up(blocks, kTileBlocks)},
                                        exponents.options().dtype(at::kByte));
    padded.narrow(0, 0, lines).narrow(1, 0, blocks).copy_(exponents);
    return padded
        .view({padded.size(0) / kTileLines, kTileLines / kLinesOfWord, kLinesOfWord,
               padded.size(1) / kTileBlocks, kTileBlocks})
        .permute({0, 3, 2, 1, 4})
        .contiguous();
}

/// The powers of two with these exponents [lines, blocks] in the order of cublas::ScaleMode::Block128. All
/// are exact: fp32 has 2^-127 too, as a subnormal number.
at::Tensor in_order_of_blocks(const at::Tensor& exponents) {
    const at::Tensor powers =
        at::empty({exponents.size(1), exponents.size(0)}, exponents.options().dtype(at::kFloat));
    return powers.copy_(exponents.view(kExponents).t());
}

/// The same of squares, [squares, blocks], in the order of cublas::ScaleMode::SquareB.
at::Tensor in_order_of_squares(const at::Tensor& exponents) {
    const int64_t squares = exponents.size(0), blocks = exponents.size(1);
    const at::Tensor powers =
        at::zeros({squares, round_up(blocks, kSquareBlocks)}, exponents.options().dtype(at::kFloat));
    powers.narrow(1, 0, blocks).copy_(exponents.view(kExponents));
    return powers;
}

/// `right`: of the product's right operand.
at::Tensor scales_for(const Operand& lines, cublas::ScaleMode mode, bool right) {
    if (mode == cublas::ScaleMode::Block) return in_tiles(exponents_of(lines));
    if (mode == cublas::ScaleMode::SquareB && right) return in_order_of_squares(lines.scale);
    if (has_blocks_of_128(mode)) return in_order_of_blocks(exponents_of_lines(lines));
    return mode == cublas::ScaleMode::Line ? scales_of_lines(lines.scale, lines.values.size(0)) : lines.scale;
}

/// Whether rows begin at multiples of 16 bytes, and their elements are adjacent.
bool is_aligned(const at::Tensor& x) {
    return has_dense_rows(x) && x.stride(0) * x.element_size() % cublas::kFloat8Alignment == 0 &&
           has_aligned_address(x);
}

/// The matrix of an operand in float8 with aligned rows: one that it has, or a copy.
at::Tensor with_adjacent_terms(const Operand& operand) {
    const at::Tensor& x = operand.values;
    if (is_aligned(x)) return x;
    if (operand.other_order.defined() && is_aligned(operand.other_order)) return operand.other_order;
    if (!has_dense_rows(x.t())) return x.clone(at::MemoryFormat::Contiguous);
    at::Tensor copy = at::empty(x.sizes(), x.options());
    note_pass({x, copy});
    if (x.is_meta()) return copy;
    kernels::gpu_table()->transpose_bytes(
        {bytes_of(x), x.size(1), x.size(0), x.stride(1), {bytes_of(copy), copy.stride(0)}},
        gpu::current_stream());
    return copy;
}

/// The matrix of an operand as cuBLASLt reads it. `either_order`: also if its columns are aligned instead.
at::Tensor readable_float8(const Operand& operand, bool either_order) {
    const at::Tensor& x = operand.values;
    const bool by_columns = either_order && is_aligned(x.t()) && x.size(0) % cublas::kFloat8Alignment == 0;
    return by_columns ? x : with_adjacent_terms(operand);
}

/// out = a b + addend + bias. `addend` and `bias` may be undefined; `addend` has the shape and type of `out`.
struct ScaledProduct {
    const at::Tensor& out;
    const Operand &a, &b;
    const at::Tensor& addend;
    const at::Tensor& bias;
    bool fast_sums;  // cublas::Product::fast_sums
};

/// to = a b + addend + bias by cuBLASLt, if it has an algorithm. All are as cublas::Product wants them.
bool run(const at::Tensor& to, const ScaledProduct& product, cublas::ScaleMode mode, const at::Tensor& addend,
         const at::Tensor& bias) {
    const Operand &left = product.a, right = product.b.transposed();
    const bool either_order =
        product_target(left.values).reads_float8_in_either_order() && mode <= cublas::ScaleMode::Matrix;
    const at::Tensor a = readable_float8(left, either_order), b = readable_float8(right, either_order);
    note_product(to, a, a.size(1), has_blocks_of_128(mode));
    at::Tensor scale_a, scale_b;
    if (mode != cublas::ScaleMode::None) {
        scale_a = scales_for(left, mode, /*right=*/false);
        scale_b = scales_for(right, mode, /*right=*/true);
    }
    if (to.is_meta()) return true;
    const auto address = [](const at::Tensor& x) { return x.defined() ? x.const_data_ptr() : nullptr; };
    const auto try_run = [&](const at::Tensor& rows, const at::Tensor& columns) {
        return multiplier().try_run({.c = matrix_of(to.mutable_data_ptr(), to),
                                     .a = matrix_of(rows.const_data_ptr(), rows),
                                     .b = matrix_of(columns.const_data_ptr(), columns).transposed(),
                                     .addend = address(addend),
                                     .bias = address(bias),
                                     .scales = mode,
                                     .scale_a = address(scale_a),
                                     .scale_b = address(scale_b),
                                     .fast_sums = product.fast_sums && !has_blocks_of_128(mode),
                                     .max_multiprocessors = product_multiprocessors()},
                                    gpu::current_stream());
    };
    if (try_run(a, b)) return true;
    const bool adjacent = is_aligned(a) && is_aligned(b);
    return !adjacent && try_run(with_adjacent_terms(left), with_adjacent_terms(right));
}

/// Whether cuBLASLt can write, or add to, these matrices itself.
bool fits(const at::Tensor& out, const at::Tensor& addend) {
    return is_aligned(out) &&
           (!addend.defined() || (is_aligned(addend) && addend.strides() == out.strides() &&
                                  addend.scalar_type() == out.scalar_type()));
}

/// Multiplies a sum of products by the scales of its operands' matrices or lines. The scales of two matrices
/// are multiplied with each other first, as by cuBLASLt. REQUIRES: scales of blocks are applied already.
void apply_scales(const at::Tensor& sum, const Operand& a, const Operand& b) {
    const auto apply = [&](const at::Tensor& scale) {
        note_pass({sum, sum});
        at::Tensor(sum).mul_(scale);
    };
    if (a.scale.scalar_type() != at::kFloat) return;
    if (a.scale.numel() == 1 && b.scale.numel() == 1) return apply(a.scale * b.scale);
    apply(a.scale);
    apply(b.scale);
}

/// Computes the product and returns true, unless it has to be emulated.
bool multiply_in_float8(const ScaledProduct& product) {
    const auto& [out, a, b, addend, bias, fast_sums] = product;
    const cublas::Target target = product_target(a.values);
    if (target.capability == 0) return false;
    const cublas::ScaleMode mode = scale_mode_of(a, b, target);
    const cublas::Float8Product kind{element_type_of(a.values.scalar_type()),
                                     element_type_of(b.values.scalar_type()),
                                     element_type_of(out.scalar_type()),
                                     mode,
                                     out.size(1),
                                     a.values.size(1),
                                     out.size(0)};
    const Float8Way way = choose_float8(kind, target).way;
    if (way == Float8Way::Emulated) return false;
    const bool adds_bias = way == Float8Way::Native && bias.defined() && out.element_size() == 2;
    if (way == Float8Way::Native && fits(out, addend)) {
        if (!run(out, product, mode, addend, adds_bias ? bias : at::Tensor())) return false;
        if (bias.defined() && !adds_bias) at::Tensor(out).add_(bias);
        return true;
    }
    const at::Tensor sum = at::empty(out.sizes(), out.options().dtype(at::kFloat));
    if (!run(sum, product, way == Float8Way::Native ? mode : cublas::ScaleMode::None, {}, {})) return false;
    if (way == Float8Way::ScaledAfter) apply_scales(sum, a, b);
    for (const at::Tensor& each : {addend, bias}) {
        if (!each.defined()) continue;
        note_pass({sum, sum, each});
        at::Tensor(sum).add_(each);
    }
    note_pass({sum, out});
    at::Tensor(out).copy_(sum);
    return true;
}

}  // namespace

ElementType element_type_of(at::ScalarType type) {
    const auto found = gpu::element_type(type);
    ARGOSY_CHECK(found && is_floating(*found), "a product of {}", toString(type));
    return *found;
}

Float8Choice choose_float8(const cublas::Float8Product& product, const cublas::Target& target) {
    std::string reason = cublas::refusal(product, target);
    if (reason.empty()) return {Float8Way::Native, {}};
    cublas::Float8Product values = product;
    values.scales = cublas::ScaleMode::None;
    const bool after = product.scales == cublas::ScaleMode::Line && cublas::refusal(values, target).empty();
    return {after ? Float8Way::ScaledAfter : Float8Way::Emulated, std::move(reason)};
}

Float8Choice choose_float8(const Recipe::Product& casts, at::ScalarType result, int64_t columns,
                           int64_t terms, const cublas::Target& target) {
    return choose_float8(
        {element_type_of(casts.left.type), element_type_of(casts.right.type), element_type_of(result),
         std::max(scale_mode_of(casts.left, target), scale_mode_of(casts.right, target)), columns, terms},
        target);
}

cublas::Target product_target(const at::Tensor& x) {
    if (path() == Path::Plain) return {};
    if (x.is_meta()) return {planned_capability(), planned_capability() > 0 ? kOldestVersion : 0};
    return gpu::holds(x) ? multiplier().target() : cublas::Target{};
}

Operand for_sums_over_rows(const Operand& operand) {
    const cublas::Target target = product_target(operand.values);
    const bool needs_copy = target.multiplies_float8() && !target.reads_float8_in_either_order();
    if (!needs_copy || operand.other_order.defined() || is_aligned(operand.values.t())) return operand;
    Operand result = operand;
    result.other_order = with_adjacent_terms(operand.transposed()).t();
    return result;
}

void multiply_scaled(const at::Tensor& out, const Operand& a, const Operand& b, Summing summing,
                     const at::Tensor& addend, const at::Tensor& bias) {
    ARGOSY_CHECK(a.scaled() && b.scaled(), "a product of which one operand is in float8");
    if (summing.accumulation == Accumulation::Native &&
        multiply_in_float8({out, a, b, addend, bias, summing.fast})) {
        return;
    }
    const at::Tensor sum = at::empty(out.sizes(), out.options().dtype(at::kFloat));
    write_product(sum, widened_to_bf16(a), widened_to_bf16(b));
    apply_scales(sum, a, b);
    if (bias.defined()) sum.add_(bias);
    if (addend.defined()) {
        note_pass({sum, sum, addend});
        sum.add_(addend);
    }
    note_pass({sum, out});
    out.copy_(sum);
}

}  // namespace argosy::ops
