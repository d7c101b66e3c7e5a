// Products of operands in float8: which of them cuBLASLt computes in float8 on a GPU, and which are emulated
// by products of the same numbers in bf16.
//
// On most GPUs a product needs the terms of each sum side by side. An operand that lies otherwise
// (ops/gpu_casts.h) is transposed, byte by byte, before its product.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "cublas/matmul.h"
#include "ops/float8.h"

namespace argosy::ops {

/// LibTorch's types and matrices as cuBLASLt's.
ElementType element_type_of(at::ScalarType type);
template <class Data>
cublas::MatrixOf<Data> matrix_of(Data* data, const at::Tensor& x) {
    return {data, element_type_of(x.scalar_type()), x.size(0), x.size(1), x.stride(0), x.stride(1)};
}

enum class Float8Way {
    Native,       // with its scales, by cuBLASLt
    ScaledAfter,  // float8 by cuBLASLt, into fp32; then the scales of rows and columns
    Emulated,     // in bf16
};
struct Float8Choice {
    Float8Way way;
    std::string reason;  // why not Native, to follow "because"
};
Float8Choice choose_float8(const cublas::Float8Product& product, const cublas::Target& target);

/// How a product is computed whose operands are cast so and whose result has that type and number of columns.
Float8Choice choose_float8(const Recipe::Product& casts, at::ScalarType result, int64_t columns,
                           int64_t terms, const cublas::Target& target);

/// The GPU and library that decide which products of x there are: x's GPU, or for a tensor without data the
/// planned one. No GPU for other tensors, and on Path::Plain.
cublas::Target product_target(const at::Tensor& x);

/// `operand`, which is in float8, for several products that sum over its rows: on a GPU whose products need
/// the terms side by side, each of them would make the same copy.
Operand for_sums_over_rows(const Operand& operand);

/// How a product of operands in float8 is summed.
struct Summing {
    Accumulation accumulation = Accumulation::Native;
    bool fast = false;  // on a GPU
};

/// out = the product of two operands in float8 with their scales + addend + bias, of which each may be
/// undefined; the addend has the shape of `out`. By cuBLASLt on a GPU that has the product, if it is to be
/// summed natively, else emulated.
void multiply_scaled(const at::Tensor& out, const Operand& a, const Operand& b, Summing summing,
                     const at::Tensor& addend = {}, const at::Tensor& bias = {});

}  // namespace argosy::ops
