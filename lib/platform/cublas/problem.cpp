#include "cublas/problem.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/error.h"

namespace argosy::cublas {
namespace {

constexpr int kMaxAlignment = 256;  // bytes; no algorithm uses a larger alignment
/// Divides the rows of a product with blocks of 128. cuBLASLt's documentation says 4; NVIDIA's Transformer
/// Engine found that cuBLASLt refuses other rows than multiples of 8.
constexpr int64_t kRowsOfBlocks = 8;

int alignment_of(const void* data) {
    const auto address = reinterpret_cast<uintptr_t>(data) | kMaxAlignment;
    return 1 << std::countr_zero(address);
}

bool is_unscaled(ElementType type) {
    return type == ElementType::BFloat16 || type == ElementType::Float32 || type == ElementType::Float64;
}

/// Whether the matrix is row-major: elements of a row are adjacent, and rows do not overlap. The stride of a
/// dim of size 1 is ignored.
template <class Data>
bool is_row_major(const MatrixOf<Data>& x) {
    if (x.rows == 0 || x.columns == 0) return true;
    return (x.columns == 1 || x.column_stride == 1) && (x.rows == 1 || x.row_stride >= x.columns);
}

/// How a matrix is stored for cuBLASLt: in columns that are `stride` elements apart. If `transposed`, the
/// columns are those of the transpose.
struct Storage {
    bool transposed;
    int64_t stride;
};

/// REQUIRES: the matrix is row-major or column-major. An ignored stride becomes one that cuBLASLt accepts.
template <class Data>
Storage storage_of(const MatrixOf<Data>& x) {
    if (is_row_major(x.transposed())) {
        return {false, x.columns > 1 ? x.column_stride : std::max<int64_t>(x.rows, 1)};
    }
    return {true, x.rows > 1 ? x.row_stride : std::max<int64_t>(x.columns, 1)};
}

template <class Data>
bool is_row_or_column_major(const MatrixOf<Data>& x) {
    return is_row_major(x) || is_row_major(x.transposed());
}

Addend addend_of(const Product& product) {
    if (product.addend == nullptr) return Addend::None;
    return product.addend == product.c.data ? Addend::C : Addend::Another;
}

constexpr const char* kScaledBy[] = {"",
                                     ", scaled",
                                     ", scaled by lines",
                                     ", scaled by blocks",
                                     ", scaled by blocks of 128",
                                     ", A scaled by squares",
                                     ", B scaled by squares"};

/// The scales of a product whose operands change places.
ScaleMode swapped(ScaleMode scales) {
    if (scales == ScaleMode::SquareA) return ScaleMode::SquareB;
    return scales == ScaleMode::SquareB ? ScaleMode::SquareA : scales;
}

/// Checks what refusal() cannot see.
void check_float8(const Product& product, const Problem& p) {
    const int64_t strides = p.stride_a | p.stride_b | p.stride_d * size_bytes(p.result_type);
    const int least = std::min({p.alignment_a, p.alignment_b, p.alignment_c, p.alignment_d});
    const bool scaled = p.scales == ScaleMode::None || (product.scale_a && product.scale_b);
    const auto what = [&] { return describe(product); };
    ARGOSY_CHECK(least >= kFloat8Alignment && strides % kFloat8Alignment == 0,
                 "a matrix of a float8 product is not aligned: {}", what());
    ARGOSY_CHECK(!p.bias || size_bytes(p.result_type) == 2, "a float8 product cannot add a bias: {}", what());
    ARGOSY_CHECK(scaled, "a float8 product lacks a scale: {}", what());
    ARGOSY_CHECK(!p.fast_sums || !has_blocks_of_128(p.scales),
                 "a float8 product with blocks of 128 has no fast sums: {}", what());
}

void check(const Product& product) {
    const auto& c = product.c;
    const auto &a = product.a, &b = product.b;
    const void* const bias = product.bias;
    const auto what = [&] { return describe(product); };
    ARGOSY_CHECK(a.columns == b.rows && a.rows == c.rows && b.columns == c.columns,
                 "the shapes do not fit together: {}", what());
    const bool float8 = is_float8(a.type) && is_float8(b.type);
    ARGOSY_CHECK(float8 || (is_unscaled(a.type) && a.type == b.type),
                 "A and B have unequal or unsupported types: {}", what());
    const bool into_fp32 = a.type == ElementType::BFloat16 && c.type == ElementType::Float32;
    ARGOSY_CHECK(float8 || c.type == a.type || into_fp32, "C has an unsupported type: {}", what());
    ARGOSY_CHECK(is_row_or_column_major(a) && is_row_or_column_major(b) && is_row_or_column_major(c),
                 "a matrix is neither row-major nor column-major: {}", what());
    ARGOSY_CHECK(!bias || (is_row_major(c) && a.columns > 0), "this product cannot add a bias: {}", what());
    ARGOSY_CHECK(!product.addend || product.addend_factor == 1 || a.columns > 0,
                 "a product without terms cannot scale its addend: {}", what());
}

template <class Data>
std::string strides(const MatrixOf<Data>& x) {
    return fmt::format("[{}, {}]", x.row_stride, x.column_stride);
}

}  // namespace

std::string version_text() {
    const int number = version();
    return fmt::format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
}

const char* name(ElementType type) {
    switch (type) {
        case ElementType::Float16:
            return "fp16";
        case ElementType::BFloat16:
            return "bf16";
        case ElementType::Float32:
            return "fp32";
        case ElementType::Float64:
            return "fp64";
        case ElementType::Float8E4M3:
            return "e4m3";
        case ElementType::Float8E5M2:
            return "e5m2";
        default:
            return "another type";
    }
}

std::string refusal(const Float8Product& product, const Target& target) {
    const auto& [a, b, c, scales, columns, terms, rows] = product;
    const auto [capability, version] = target;
    if (!is_float8(a) || !is_float8(b)) return "an operand is not in float8";
    if (capability == 0) return "there is no GPU";
    if (!target.multiplies_float8()) return "tensor cores have no float8 before compute capability 8.9";
    if (a == ElementType::Float8E5M2 && b == a) return "cuBLASLt has no product of two matrices in E5M2";
    if (c != ElementType::BFloat16 && c != ElementType::Float32)
        return fmt::format("cuBLASLt has no product of float8 in {}", name(c));
    if (scales == ScaleMode::Line && (capability != 90 || version < 120900))
        return "cuBLASLt has scales of rows only for compute capability 9.0, from version 12.9 on";
    if (scales == ScaleMode::Block && (capability < 100 || version < 120800))
        return "cuBLASLt has E8M0 scales of blocks only from compute capability 10.0 and version 12.8 on";
    if (has_blocks_of_128(scales) && (capability != 90 || version < 120900))
        return "cuBLASLt has fp32 scales of blocks only for compute capability 9.0, from version 12.9 on";
    const int64_t multiple = scales == ScaleMode::Block ? 32 : kFloat8Alignment;
    if (terms % multiple != 0) return fmt::format("{} does not divide {} terms of a sum", multiple, terms);
    if (columns % kFloat8Alignment != 0)
        return fmt::format("{} does not divide {} columns", kFloat8Alignment, columns);
    if (has_blocks_of_128(scales) && rows % kRowsOfBlocks != 0)
        return fmt::format("{} does not divide {} rows", kRowsOfBlocks, rows);
    return {};
}

void check_target(const Product& product, const Problem& p, const Target& target) {
    if (!is_float8(p.type_a)) return;
    const std::string reason = refusal({p.type_a, p.type_b, p.result_type, p.scales, p.m, p.k, p.n}, target);
    ARGOSY_CHECK(reason.empty(), "{}: {}", reason, describe(product));
    const bool either_order = target.reads_float8_in_either_order() && p.scales <= ScaleMode::Matrix;
    const auto is_readable = [&](bool terms_are_adjacent, int64_t num_lines) {
        return terms_are_adjacent || (either_order && num_lines % kFloat8Alignment == 0);
    };
    ARGOSY_CHECK(is_readable(p.transpose_a, p.m) && is_readable(!p.transpose_b, p.n),
                 "the terms of a float8 product's sums are not adjacent: {}", describe(product));
}

Operands operands_of(const Product& product) {
    check(product);
    ConstMatrix a = product.a, b = product.b;
    Matrix c = product.c;
    const void *scale_a = product.scale_a, *scale_b = product.scale_b;
    ScaleMode scales = product.scales;
    if (is_row_major(c)) {
        std::swap(scale_a, scale_b);
        scales = swapped(scales);
        a = std::exchange(b, a).transposed();
        b = b.transposed();
        c = c.transposed();
    }
    const void* const addend = product.addend == nullptr ? c.data : product.addend;
    const Storage storage_a = storage_of(a), storage_b = storage_of(b), storage_c = storage_of(c);
    const Problem problem{.type_a = a.type,
                          .type_b = b.type,
                          .result_type = c.type,
                          .scales = scales,
                          .fast_sums = product.fast_sums,
                          .max_multiprocessors = product.max_multiprocessors,
                          .transpose_a = storage_a.transposed,
                          .transpose_b = storage_b.transposed,
                          .m = c.rows,
                          .n = c.columns,
                          .k = a.columns,
                          .stride_a = storage_a.stride,
                          .stride_b = storage_b.stride,
                          .stride_d = storage_c.stride,
                          .addend = addend_of(product),
                          .bias = product.bias != nullptr,
                          .alignment_a = alignment_of(a.data),
                          .alignment_b = alignment_of(b.data),
                          .alignment_c = alignment_of(addend),
                          .alignment_d = alignment_of(c.data),
                          .alignment_bias = alignment_of(product.bias)};
    if (is_float8(a.type) && problem.k > 0) check_float8(product, problem);
    return {problem,      a.data,  b.data,  addend,         c.data,
            product.bias, scale_a, scale_b, product.factor, product.addend ? product.addend_factor : 0};
}

std::string describe(const Product& product) {
    const Matrix& c = product.c;
    const ConstMatrix &a = product.a, &b = product.b;
    constexpr const char* kInto[] = {"into", "added to", "plus another matrix into"};
    return fmt::format(
        "{} [{}, {}] x {}[{}, {}] {} {} [{}, {}]{}{}; strides {}, {} and {}; aligned to {}, {} and {} bytes",
        name(a.type), a.rows, a.columns, a.type == b.type ? "" : name(b.type) + std::string(" "), b.rows,
        b.columns, kInto[static_cast<int>(addend_of(product))], name(c.type), c.rows, c.columns,
        product.bias ? " with a bias" : "", kScaledBy[static_cast<int>(product.scales)], strides(a),
        strides(b), strides(c), alignment_of(a.data), alignment_of(b.data), alignment_of(c.data));
}

}  // namespace argosy::cublas
