// A product as cuBLASLt is asked for it, D[m, n] = op(A)[m, k] op(B)[k, n], in which every matrix lies column
// by column. One whose C lies row by row is asked for as C^T = B^T A^T, which is the same memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "cublas/matmul.h"

namespace argosy::cublas {

/// Everything that an algorithm may depend on: products of one problem may share one.
struct Problem {
    ElementType type, result_type;
    bool transpose_a, transpose_b;
    int64_t m, n, k;
    int64_t stride_a, stride_b, stride_d;  // between columns as they lie, in elements
    bool accumulate, bias;
    /// What the addresses are multiples of, in bytes: a power of two, 256 at most. 256 without a bias.
    int alignment_a, alignment_b, alignment_d, alignment_bias;

    bool operator==(const Problem&) const = default;
};

struct ProblemHash {
    size_t operator()(const Problem& problem) const;
};

/// A problem, and the memory that it is about this time.
struct Request {
    Problem problem;
    const void *a, *b;
    void* d;
    const void* bias;
};

/// REQUIRES: the product is as matmul.h says; what is not breaks an invariant, with its shapes.
Request request_of(const Product& product);

/// Elements from the first of a matrix to its last, those between its columns included.
int64_t span_of(int64_t rows, int64_t columns, int64_t stride);

/// For messages: "bf16 [16384, 4096] x [4096, 1024] added to fp32, strides ...".
std::string describe(const Product& product);

const char* name(ElementType type);

}  // namespace argosy::cublas
