// The products of the stand-in for cuBLASLt; fake_cublaslt.cpp has its interface.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>

namespace argosy::testing {

struct Layout {
    cudaDataType_t type;
    int64_t rows, columns, stride;
};

struct Operation {
    cublasComputeType_t compute_type;
    cudaDataType_t scale_type;
    int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
    uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    int32_t bias_type = -1;
    const void* bias = nullptr;
    int8_t fast_sums = 0;  // of float8
    int32_t max_multiprocessors = 0;
    int32_t scale_mode_a = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, scale_mode_b = scale_mode_a;
    const void *scale_a = nullptr, *scale_b = nullptr;
};

bool is_float8(cudaDataType_t type);

size_t size_of(cudaDataType_t type);
double element(const void* data, int64_t index, cudaDataType_t type);

/// One call of cublasLtMatmul, all arguments by value: a stream may execute it later.
struct Call {
    Operation operation;
    Layout a_layout, b_layout, d_layout;
    const void *a, *b, *c;
    void* d;
    double alpha, beta;
    int algorithm;

    bool transposed_a() const { return operation.transpose_a == CUBLAS_OP_T; }
    bool transposed_b() const { return operation.transpose_b == CUBLAS_OP_T; }
    bool has_adjacent_terms() const { return transposed_a() && !transposed_b(); }
    int64_t terms() const { return transposed_a() ? a_layout.rows : a_layout.columns; }
    cudaDataType_t bias_type() const {
        return operation.bias_type == -1 ? d_layout.type : static_cast<cudaDataType_t>(operation.bias_type);
    }
    bool has_bias() const { return operation.epilogue == CUBLASLT_EPILOGUE_BIAS; }

    cublasStatus_t check_shapes() const;
    cublasStatus_t check_types() const;
    cublasStatus_t check_float8() const;
    cublasStatus_t check_pointers() const;
    void compute() const;

  private:
    bool has_right_long_blocks() const;
    bool has_scales_there(int32_t mode, const void* scales, int64_t num_lines) const;
    float scale_of(int64_t row, int64_t column) const;
    template <class Sum>
    void compute_in() const;
};

}  // namespace argosy::testing
