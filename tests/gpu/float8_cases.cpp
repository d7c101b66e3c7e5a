// The casts to float8 of matrices in bf16, and what they need.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/element_type.h"
#include "gpu/kernel_cases.h"
#include "kernels/gpu_table.h"
#include "kernels/table.h"

namespace argosy::kernels {
namespace {

/// Scales of the whole matrix, of its rows or of its columns.
enum class Groups { Matrix, Rows, Columns };
const char* name(Groups groups) {
    constexpr const char* kNames[] = {"of a matrix", "of rows", "of columns"};
    return kNames[static_cast<int>(groups)];
}
constexpr int64_t kFloat8Columns = 4096;
int64_t float8_rows(int64_t elements) { return std::max<int64_t>(elements / kFloat8Columns / 32 * 32, 32); }

Grouped<BFloat16> grouped(Slices& memory, Groups groups, int64_t rows) {
    return {memory.in<BFloat16>(rows * kFloat8Columns),
            rows,
            kFloat8Columns,
            kFloat8Columns,
            groups == Groups::Rows ? 1 : rows,
            groups == Groups::Columns ? 1 : kFloat8Columns};
}

Case largest_magnitudes(Groups groups) {
    return {"largest_magnitudes", fmt::format("{}, bf16", name(groups)),
            [=](Slices& memory, int64_t elements) -> Run {
                const Grouped<BFloat16> matrix = grouped(memory, groups, float8_rows(elements));
                const int64_t stride = kFloat8Columns / matrix.group_columns;
                const int64_t count = matrix.num_rows / matrix.group_rows * stride;
                const LargestMagnitudes<BFloat16> args = {matrix, memory.zeros_for_launches(count), stride};
                return {[=, launch = int64_t{0}](GpuStream stream) mutable {
                            LargestMagnitudes<BFloat16> own = args;
                            own.largest += launch++ % Slices::kLaunches * count;
                            gpu_table()->of<BFloat16>().largest_magnitudes(own, stream);
                        },
                        [=] { table().of<BFloat16>().largest_magnitudes(args); }};
            }};
}

/// `transposed`: the kernel writes the transpose too.
Case cast_to_float8(Groups groups, bool transposed) {
    return {transposed ? "cast_to_float8 and its transpose" : "cast_to_float8",
            fmt::format("{}, bf16", name(groups)), [=](Slices& memory, int64_t elements) -> Run {
                const int64_t rows = float8_rows(elements), count = rows * kFloat8Columns;
                const Grouped<BFloat16> matrix = grouped(memory, groups, rows);
                const int64_t stride = kFloat8Columns / matrix.group_columns;
                const float* const factors = memory.in<float>(rows / matrix.group_rows * stride);
                const CastToFloat8<BFloat16> args = {
                    matrix, factors, stride, Float8Type::E4M3, memory.out<uint8_t>(count), kFloat8Columns};
                const TransposedFloat8 other = {transposed ? memory.out<uint8_t>(count) : nullptr, rows};
                return {[=](GpuStream stream) {
                            gpu_table()->of<BFloat16>().cast_to_float8(args, other, stream);
                        },
                        [=] {
                            table().of<BFloat16>().cast_to_float8(args);
                            for (int64_t i = 0; transposed && i < count; ++i)
                                other.values[i % kFloat8Columns * rows + i / kFloat8Columns] = args.values[i];
                        }};
            }};
}

float widened(BFloat16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

/// What the kernel computes for numbers that are not extreme.
void cast_blocks_on_processor(const CastBlocks<BFloat16>& args, uint8_t* values, bool transposed) {
    const Grouped<BFloat16>& matrix = args.matrix;
    const auto block_of = [&](int64_t row, int64_t column) {
        return row / matrix.group_rows * args.exponent_stride + column / matrix.group_columns;
    };
    const int64_t count = matrix.num_rows * matrix.row_size;
    std::vector<float> largest(count / matrix.group_rows / matrix.group_columns);
    for (int64_t i = 0; i < count; ++i) {
        float& each = largest[block_of(i / matrix.row_size, i % matrix.row_size)];
        each = std::max(each, std::abs(widened(matrix.x[i])));
    }
    for (size_t i = 0; i < largest.size(); ++i)
        args.exponents[i] = static_cast<uint8_t>(std::ceil(std::log2(largest[i] / 448)) + 127);
    for (int64_t i = 0; i < count; ++i) {
        const int64_t row = i / matrix.row_size, column = i % matrix.row_size;
        const float x = std::ldexp(widened(matrix.x[i]), 127 - args.exponents[block_of(row, column)]);
        values[transposed ? column * matrix.num_rows + row : i] = Float8E4M3::saturated(x);
    }
}

/// In blocks of 128 elements of rows; of columns, for which the kernel writes the transpose; or of squares.
Case cast_blocks(const char* size, int64_t group_rows, int64_t group_columns) {
    return {"cast_blocks", size, [=](Slices& memory, int64_t elements) -> Run {
                const int64_t rows = std::max<int64_t>(float8_rows(elements) / 128, 1) * 128,
                              count = rows * kFloat8Columns, stride = kFloat8Columns / group_columns;
                const bool transposed = group_rows > group_columns;
                Grouped<BFloat16> matrix = grouped(memory, Groups::Matrix, rows);
                matrix.group_rows = group_rows, matrix.group_columns = group_columns;
                auto* const values = memory.out<uint8_t>(count);
                auto* const exponents = memory.out<uint8_t>(rows / group_rows * stride);
                const CastBlocks<BFloat16> args = {
                    matrix, true, exponents, stride, transposed ? nullptr : values, kFloat8Columns};
                const TransposedFloat8 other = {transposed ? values : nullptr, rows};
                return {
                    [=](GpuStream stream) { gpu_table()->of<BFloat16>().cast_blocks(args, other, stream); },
                    [=] { cast_blocks_on_processor(args, values, transposed); }};
            }};
}

Case transpose_bytes() {
    return {"transpose_bytes", "float8", [](Slices& memory, int64_t elements) -> Run {
                const int64_t rows = float8_rows(elements), count = rows * kFloat8Columns;
                const auto* const from = memory.in<uint8_t>(count);
                auto* const to = memory.out<uint8_t>(count);
                const TransposeBytes args = {from, rows, kFloat8Columns, kFloat8Columns, {to, rows}};
                return {[=](GpuStream stream) { gpu_table()->transpose_bytes(args, stream); },
                        [=] {
                            for (int64_t i = 0; i < count; ++i)
                                to[i % kFloat8Columns * rows + i / kFloat8Columns] = from[i];
                        }};
            }};
}

}  // namespace

std::vector<Case> float8_cases() {
    return {largest_magnitudes(Groups::Matrix),       largest_magnitudes(Groups::Rows),
            largest_magnitudes(Groups::Columns),      cast_to_float8(Groups::Matrix, false),
            cast_to_float8(Groups::Matrix, true),     cast_to_float8(Groups::Rows, false),
            cast_to_float8(Groups::Columns, true),    transpose_bytes(),
            cast_blocks("of rows, bf16", 1, 128),     cast_blocks("of columns, bf16", 128, 1),
            cast_blocks("of squares, bf16", 128, 128)};
}

}  // namespace argosy::kernels
