// A Product in the form that cuBLASLt takes, D[m, n] = op(A)[m, k] op(B)[k, n] + C[m, n] with column-major
// matrices: the Product's c is D here, and its addend is C. A row-major D is computed as D^T = B^T A^T + C^T,
// which uses the same memory.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "cublas/matmul.h"

namespace argosy::cublas {

enum class Addend { None, C, Another };

/// Everything that an algorithm may depend on: products of the same problem may share an algorithm.
struct Problem {
    ElementType type_a, type_b, result_type;
    ScaleMode scales;
    bool fast_sums;
    int max_multiprocessors;
    bool transpose_a, transpose_b;
    int64_t m, n, k;
    int64_t stride_a, stride_b, stride_d;  // between stored columns, in elements
    Addend addend;
    bool bias;
    /// Alignments in bytes: the largest power of two that divides the address, at most 256. Without
    /// a bias, alignment_bias is 256; without an addend, alignment_c is that of D.
    int alignment_a, alignment_b, alignment_c, alignment_d, alignment_bias;

    auto operator<=>(const Problem&) const = default;
};

/// A problem, the addresses of one product's matrices and bias, and its factors, on which no algorithm
/// depends. `c` is the addend, or d without one; `addend_factor` is then 0.
struct Operands {
    Problem problem;
    const void *a, *b, *c;
    void* d;
    const void* bias;
    const void *scale_a, *scale_b;
    double factor, addend_factor;
};

/// REQUIRES: the matrices are as matmul.h says for a Product; otherwise an assertion fails and names the
/// shapes.
Operands operands_of(const Product& product);

/// Asserts that cuBLASLt has the product there, if it is of float8.
void check_target(const Product& product, const Problem& problem, const Target& target);

/// For messages: "bf16 [16384, 4096] x [4096, 1024] added to fp32 [16384, 1024]; strides ...".
std::string describe(const Product& product);

const char* name(ElementType type);

inline bool is_float8(ElementType type) {
    return type == ElementType::Float8E4M3 || type == ElementType::Float8E5M2;
}

}  // namespace argosy::cublas
