#include "support/fake_cublaslt_product.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/element_type.h"
#include "support/fake_cublaslt.h"
#include "support/fake_gpus.h"

namespace argosy::testing {

bool is_float8(cudaDataType_t type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

size_t size_of(cudaDataType_t type) {
    return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : is_float8(type) ? 1 : 2;
}

double element(const void* data, int64_t index, cudaDataType_t type) {
    switch (type) {
        case CUDA_R_64F:
            return static_cast<const double*>(data)[index];
        case CUDA_R_32F:
            return static_cast<const float*>(data)[index];
        case CUDA_R_8F_E4M3:
            return Float8E4M3::value(static_cast<const uint8_t*>(data)[index]);
        case CUDA_R_8F_E5M2:
            return Float8E5M2::value(static_cast<const uint8_t*>(data)[index]);
        default:
            return BFloat16::value(static_cast<const uint16_t*>(data)[index]);
    }
}

namespace {

/// Bytes of a matrix from its first element to its last.
size_t bytes_of(const Layout& x) { return ((x.columns - 1) * x.stride + x.rows) * size_of(x.type); }

void store_element(void* data, int64_t index, cudaDataType_t type, double value) {
    const auto narrow = static_cast<float>(value);  // exact except for fp64: sums are fp32
    switch (type) {
        case CUDA_R_64F:
            static_cast<double*>(data)[index] = value;
            break;
        case CUDA_R_32F:
            static_cast<float*>(data)[index] = narrow;
            break;
        default:
            static_cast<uint16_t*>(data)[index] = BFloat16::rounded(narrow);
    }
}

double rounded(double value, cudaDataType_t type) {
    uint64_t bits;
    store_element(&bits, 0, type, value);
    return element(&bits, 0, type);
}

constexpr int64_t kBlock = 32, kLongBlock = 128;  // elements with one scale

int64_t parts_of(int64_t count, int64_t size) { return (count + size - 1) / size; }

bool has_long_blocks(int32_t mode) {
    return mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F ||
           mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
}
bool has_blocks(int32_t mode) {
    return mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0 || has_long_blocks(mode);
}

/// Where cuBLASLt's documentation puts the exponent of block `block` of a line that has `num_blocks`.
int64_t place_of_exponent(int64_t line, int64_t block, int64_t num_blocks) {
    const int64_t tiles = (num_blocks + 3) / 4, tile = line / 128 * tiles + block / 4;
    return tile * 512 + line % 32 * 16 + line % 128 / 32 * 4 + block % 4;
}
int64_t num_exponents(int64_t num_lines, int64_t num_blocks) {
    return (num_lines + 127) / 128 * ((num_blocks + 3) / 4) * 512;
}

/// The same of blocks of 128: a square has 128 lines, and the blocks of a square are padded to a multiple
/// of 4.
int64_t place_of_scale(int32_t mode, int64_t line, int64_t block, int64_t num_lines, int64_t num_blocks) {
    if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F) return block * num_lines + line;
    return line / kLongBlock * (parts_of(num_blocks, 4) * 4) + block;
}
/// Numbers of scales from the first to the last.
int64_t num_scales(int32_t mode, int64_t num_lines, int64_t k) {
    switch (mode) {
        case CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F:
            return num_lines;
        case CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F:
            return num_lines * parts_of(k, kLongBlock);
        case CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F:
            return parts_of(num_lines, kLongBlock) * parts_of(parts_of(k, kLongBlock), 4) * 4;
        default:
            return 1;
    }
}

double scale_of_block(int32_t mode, const void* scales, int64_t line, int64_t term, int64_t num_lines,
                      int64_t k) {
    if (has_long_blocks(mode)) {
        return static_cast<const float*>(
            scales)[place_of_scale(mode, line, term / kLongBlock, num_lines, parts_of(k, kLongBlock))];
    }
    const int64_t place = place_of_exponent(line, term / kBlock, k / kBlock);
    return std::ldexp(1.0, static_cast<const uint8_t*>(scales)[place] - 127);
}

/// Multiplies terms, [k, lines] or with `lines_first` [lines, k], by the scales of their blocks.
template <class Sum>
void scale_blocks(std::vector<Sum>& terms, int32_t mode, const void* scales, int64_t num_lines,
                  bool lines_first) {
    const int64_t k = std::ssize(terms) / num_lines;
    for (int64_t line = 0; line < num_lines; ++line) {
        for (int64_t term = 0; term < k; ++term) {
            Sum& x = terms[lines_first ? line * k + term : term * num_lines + line];
            x = static_cast<Sum>(x * scale_of_block(mode, scales, line, term, num_lines, k));
        }
    }
}

/// Columns of op(A), then of op(B), each dense.
template <class Sum>
std::vector<Sum> dense(const void* data, const Layout& layout, bool rows_first) {
    std::vector<Sum> all;
    all.reserve(layout.rows * layout.columns);
    const int64_t outer = rows_first ? layout.rows : layout.columns;
    const int64_t inner = rows_first ? layout.columns : layout.rows;
    for (int64_t i = 0; i < outer; ++i) {
        for (int64_t j = 0; j < inner; ++j) {
            const int64_t index = rows_first ? j * layout.stride + i : i * layout.stride + j;
            all.push_back(static_cast<Sum>(element(data, index, layout.type)));
        }
    }
    return all;
}

}  // namespace

cublasStatus_t Call::check_shapes() const {
    for (const Layout& one : {a_layout, b_layout, d_layout}) {
        if (one.rows < 1 || one.columns < 1 || one.stride < one.rows) return CUBLAS_STATUS_INVALID_VALUE;
    }
    const int64_t m = transposed_a() ? a_layout.columns : a_layout.rows;
    const int64_t n = transposed_b() ? b_layout.rows : b_layout.columns;
    const int64_t k = transposed_b() ? b_layout.columns : b_layout.rows;
    return m == d_layout.rows && n == d_layout.columns && k == terms() ? CUBLAS_STATUS_SUCCESS
                                                                       : CUBLAS_STATUS_INVALID_VALUE;
}

/// The rows for real floating-point numbers of the table in cublasLtMatmul's documentation. A bias has C's
/// type.
cublasStatus_t Call::check_types() const {
    const cudaDataType_t type = a_layout.type, result = d_layout.type;
    if (is_float8(type) || is_float8(b_layout.type)) return check_float8();
    const bool wide = operation.compute_type == CUBLAS_COMPUTE_64F && operation.scale_type == CUDA_R_64F &&
                      type == CUDA_R_64F && result == CUDA_R_64F;
    const bool narrow = operation.compute_type == CUBLAS_COMPUTE_32F && operation.scale_type == CUDA_R_32F &&
                        (type == CUDA_R_16BF || type == CUDA_R_32F) &&
                        (result == type || result == CUDA_R_32F);
    const bool bias_fits = !has_bias() || operation.bias_type == -1 || operation.bias_type == result;
    const bool known = operation.epilogue == CUBLASLT_EPILOGUE_DEFAULT || has_bias();
    return b_layout.type == type && (wide || narrow) && bias_fits && known ? CUBLAS_STATUS_SUCCESS
                                                                           : CUBLAS_STATUS_NOT_SUPPORTED;
}

/// The rows for float8, the requirements of its kernels and the modes of scales that a device has. The
/// documentation lists no pair of E5M2 matrices; a bias is in bf16 if C is in fp32.
cublasStatus_t Call::check_float8() const {
    const cudaDataType_t a_type = a_layout.type, b_type = b_layout.type, result = d_layout.type;
    const bool types = is_float8(a_type) && is_float8(b_type) &&
                       (a_type == CUDA_R_8F_E4M3 || b_type == CUDA_R_8F_E4M3) &&
                       (result == CUDA_R_16BF || result == CUDA_R_32F) &&
                       operation.compute_type == CUBLAS_COMPUTE_32F && operation.scale_type == CUDA_R_32F;
    const bool bias = !has_bias() || operation.bias_type == CUDA_R_16BF;
    const bool sides = terms() % 16 == 0 && a_layout.rows % 16 == 0 && b_layout.rows % 16 == 0 &&
                       a_layout.stride % 16 == 0 && b_layout.stride % 16 == 0 && d_layout.rows % 16 == 0 &&
                       d_layout.stride * size_of(result) % 16 == 0;
    const int capability = fake_gpus().capability, mode = operation.scale_mode_a;
    const bool any_layout =
        mode == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F && capability >= 100 && capability < 120;
    const bool layouts = any_layout || has_adjacent_terms();
    const bool scales =
        mode == operation.scale_mode_b &&
        (mode == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F ||
         (mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F && capability == 90) ||
         (mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0 && capability >= 100 && terms() % kBlock == 0));
    return types && bias && layouts && sides && (scales || has_right_long_blocks()) && capability >= 89
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_NOT_SUPPORTED;
}

/// Whether both operands have blocks of 128, not both squares, and cuBLASLt takes them: on Hopper, from
/// version 12.9 on, without fast sums, m and n multiples of 4. NVIDIA's Transformer Engine found that it
/// refuses an m that is no multiple of 8, and such an n if B has no squares.
bool Call::has_right_long_blocks() const {
    constexpr int32_t kSquares = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    const bool pair = has_long_blocks(operation.scale_mode_a) && has_long_blocks(operation.scale_mode_b) &&
                      !(operation.scale_mode_a == kSquares && operation.scale_mode_b == kSquares);
    const bool sizes =
        d_layout.rows % 8 == 0 && d_layout.columns % (operation.scale_mode_b == kSquares ? 4 : 8) == 0;
    return pair && sizes && operation.fast_sums == 0 && fake_gpus().capability == 90 &&
           fake_cublaslt().version >= 120900;
}

bool Call::has_scales_there(int32_t mode, const void* scales, int64_t num_lines) const {
    if (scales == nullptr) return mode == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
    if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0) {
        return is_on_device(scales, num_exponents(num_lines, terms() / kBlock)) &&
               reinterpret_cast<uintptr_t>(scales) % 16 == 0;
    }
    const bool fits =
        mode == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F || reinterpret_cast<uintptr_t>(scales) % 16 == 0;
    return fits && is_on_device(scales, num_scales(mode, num_lines, terms()) * sizeof(float));
}

cublasStatus_t Call::check_pointers() const {
    if (!has_scales_there(operation.scale_mode_a, operation.scale_a, d_layout.rows) ||
        !has_scales_there(operation.scale_mode_b, operation.scale_b, d_layout.columns)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    const bool there =
        is_on_device(a, bytes_of(a_layout)) && is_on_device(b, bytes_of(b_layout)) &&
        is_on_device(d, bytes_of(d_layout)) && (beta == 0 || is_on_device(c, bytes_of(d_layout))) &&
        (!has_bias() ||
         (operation.bias && is_on_device(operation.bias, d_layout.rows * size_of(bias_type()))));
    const auto fits = [&](const void* data) {
        return !is_float8(a_layout.type) || reinterpret_cast<uintptr_t>(data) % 16 == 0;
    };
    return there && fits(a) && fits(b) && fits(c) && fits(d) ? CUBLAS_STATUS_SUCCESS
                                                             : CUBLAS_STATUS_INVALID_VALUE;
}

float Call::scale_of(int64_t row, int64_t column) const {
    if (operation.scale_a == nullptr || has_blocks(operation.scale_mode_a)) return 1;
    const bool lines = operation.scale_mode_a == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    return static_cast<const float*>(operation.scale_a)[lines ? row : 0] *
           static_cast<const float*>(operation.scale_b)[lines ? column : 0];
}

template <class Sum>
void Call::compute_in() const {
    const int64_t m = d_layout.rows, n = d_layout.columns, k = terms();
    std::vector<Sum> columns_of_a = dense<Sum>(a, a_layout, transposed_a());
    std::vector<Sum> columns_of_b = dense<Sum>(b, b_layout, transposed_b());
    if (has_blocks(operation.scale_mode_a)) {
        scale_blocks(columns_of_a, operation.scale_mode_a, operation.scale_a, m, /*lines_first=*/false);
        scale_blocks(columns_of_b, operation.scale_mode_b, operation.scale_b, n, /*lines_first=*/true);
    }
    const int64_t num_parts = algorithm == kRounding ? 2 : algorithm + 1;
    std::vector<Sum> part(m), sums(m);
    for (int64_t column = 0; column < n; ++column) {
        std::fill(sums.begin(), sums.end(), Sum{0});
        for (int64_t i = 0; i < num_parts; ++i) {
            std::fill(part.begin(), part.end(), Sum{0});
            for (int64_t term = i * k / num_parts; term < (i + 1) * k / num_parts; ++term) {
                const Sum factor = columns_of_b[column * k + term];
                const Sum* const column_of_a = &columns_of_a[term * m];
                for (int64_t row = 0; row < m; ++row) part[row] += column_of_a[row] * factor;
            }
            for (int64_t row = 0; row < m; ++row) {
                if (algorithm == kRounding) part[row] = static_cast<Sum>(rounded(part[row], d_layout.type));
                sums[row] += part[row];
            }
        }
        for (int64_t row = 0; row < m; ++row) {
            const int64_t index = column * d_layout.stride + row;
            Sum sum = static_cast<Sum>(alpha) * static_cast<Sum>(scale_of(row, column)) * sums[row];
            if (beta != 0) sum += static_cast<Sum>(beta * element(c, index, d_layout.type));
            if (has_bias()) sum += static_cast<Sum>(element(operation.bias, row, bias_type()));
            store_element(d, index, d_layout.type, sum);
        }
    }
}

void Call::compute() const {
    operation.compute_type == CUBLAS_COMPUTE_64F ? compute_in<double>() : compute_in<float>();
}

}  // namespace argosy::testing
