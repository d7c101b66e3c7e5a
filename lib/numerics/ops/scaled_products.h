// Products of two operands in float8 with their scales: by cuBLASLt on a GPU that has them (gpu_float8.h), if
// they are to be summed natively, else emulated.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/float8.h"

namespace argosy::ops {

/// How a product of operands in float8 is summed.
struct Summing {
    Accumulation accumulation = Accumulation::Native;
    bool fast = false;  // on a GPU
};

/// out = the product of two operands in float8 + addend + bias, of which each may be undefined; the addend
/// has the shape of `out`.
void multiply_scaled(const at::Tensor& out, const Operand& a, const Operand& b, Summing summing,
                     const at::Tensor& addend = {}, const at::Tensor& bias = {});

/// Multiplies a sum of products by the scales of its operands' matrices or lines. The scales of two matrices
/// are multiplied with each other first, as by cuBLASLt. REQUIRES: scales of blocks are applied already.
void apply_scales(const at::Tensor& sum, const Operand& a, const Operand& b);

}  // namespace argosy::ops
