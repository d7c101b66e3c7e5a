// A Product in the form that cuBLASLt takes, D[m, n] = op(A)[m, k] op(B)[k, n] with column-major matrices.
// For a row-major C the request is C^T = B^T A^T, which uses the same memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "cublas/matmul.h"

namespace argosy::cublas {

/// Everything that an algorithm may depend on: products of the same problem may share an algorithm.
struct Problem {
    ElementType type, result_type;
    bool transpose_a, transpose_b;
    int64_t m, n, k;
    int64_t stride_a, stride_b, stride_d;  // between stored columns, in elements
    bool accumulate, bias;
    /// Alignments in bytes: the largest power of two that divides the address, at most 256. Without a bias:
    /// 256.
    int alignment_a, alignment_b, alignment_d, alignment_bias;

    bool operator==(const Problem&) const = default;
};

struct ProblemHash {
    size_t operator()(const Problem& problem) const;
};

/// A problem, and the memory of one product.
struct Request {
    Problem problem;
    const void *a, *b;
    void* d;
    const void* bias;
};

/// REQUIRES: the product is as matmul.h says; otherwise an assertion fails and names the shapes.
Request request_of(const Product& product);

/// Elements from the first to the last of a column-major matrix, gaps between its columns included.
int64_t span_of(int64_t rows, int64_t columns, int64_t stride);

/// For messages: "bf16 [16384, 4096] x [4096, 1024] added to fp32, strides ...".
std::string describe(const Product& product);

const char* name(ElementType type);

}  // namespace argosy::cublas
