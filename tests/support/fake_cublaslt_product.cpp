#include "support/fake_cublaslt_product.h"

#include <algorithm>
#include <vector>

#include "base/element_type.h"
#include "support/fake_cublaslt.h"
#include "support/fake_gpus.h"

namespace argosy::testing {

size_t size_of(cudaDataType_t type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }

double element(const void* data, int64_t index, cudaDataType_t type) {
    switch (type) {
        case CUDA_R_64F:
            return static_cast<const double*>(data)[index];
        case CUDA_R_32F:
            return static_cast<const float*>(data)[index];
        case CUDA_R_16F:
            return Float16::value(static_cast<const uint16_t*>(data)[index]);
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
        case CUDA_R_16F:
            static_cast<uint16_t*>(data)[index] = Float16::rounded(narrow);
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
    const bool wide = operation.compute_type == CUBLAS_COMPUTE_64F && operation.scale_type == CUDA_R_64F &&
                      type == CUDA_R_64F && result == CUDA_R_64F;
    const bool narrow = operation.compute_type == CUBLAS_COMPUTE_32F && operation.scale_type == CUDA_R_32F &&
                        (type == CUDA_R_16BF || type == CUDA_R_16F || type == CUDA_R_32F) &&
                        (result == type || result == CUDA_R_32F);
    const bool bias_fits = !has_bias() || operation.bias_type == -1 || operation.bias_type == result;
    const bool known = operation.epilogue == CUBLASLT_EPILOGUE_DEFAULT || has_bias();
    return b_layout.type == type && (wide || narrow) && bias_fits && known ? CUBLAS_STATUS_SUCCESS
                                                                           : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t Call::check_pointers() const {
    const bool there =
        is_on_device(a, bytes_of(a_layout)) && is_on_device(b, bytes_of(b_layout)) &&
        is_on_device(d, bytes_of(d_layout)) && (beta == 0 || is_on_device(c, bytes_of(d_layout))) &&
        (!has_bias() ||
         (operation.bias && is_on_device(operation.bias, d_layout.rows * size_of(d_layout.type))));
    return there ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

template <class Sum>
void Call::compute_in() const {
    const int64_t m = d_layout.rows, n = d_layout.columns, k = terms();
    const std::vector<Sum> columns_of_a = dense<Sum>(a, a_layout, transposed_a());
    const std::vector<Sum> columns_of_b = dense<Sum>(b, b_layout, transposed_b());
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
            Sum sum = static_cast<Sum>(alpha) * sums[row];
            if (beta != 0) sum += static_cast<Sum>(beta * element(c, index, d_layout.type));
            if (has_bias()) sum += static_cast<Sum>(element(operation.bias, row, d_layout.type));
            store_element(d, index, d_layout.type, sum);
        }
    }
}

void Call::compute() const {
    operation.compute_type == CUBLAS_COMPUTE_64F ? compute_in<double>() : compute_in<float>();
}

}  // namespace argosy::testing
