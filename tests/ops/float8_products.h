// The numbers of float8 operands and the bound of their products, for tests on processors and on GPUs.
#pragma once

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "ops/float8.h"

namespace argosy::ops {

inline constexpr const char* kRecipeNames[] = {"tensorwise", "rowwise",      "rowwise_with_gw_hp",
                                               "blockwise",  "mxfp8_cublas", "mxfp8_cublas_rceil"};

/// The numbers that an operand stands for, in fp64.
inline at::Tensor values_of(const Operand& operand) {
    if (!operand.scaled()) return operand.values.to(at::kDouble);
    at::Tensor scale = operand.scale.to(at::kDouble);
    for (const int dim : {0, 1}) {
        if (scale.size(dim) > 1)
            scale = scale.repeat_interleave(operand.values.size(dim) / scale.size(dim), dim);
    }
    return operand.values.to(at::kDouble) * scale;
}

/// `found` is a b + addend, of numbers in fp64, rounded once after sums in fp32.
inline void expect_product(const at::Tensor& found, const at::Tensor& a, const at::Tensor& b,
                           const at::Tensor& addend = {}) {
    at::Tensor expected = a.mm(b), size = a.abs().mm(b.abs());
    if (addend.defined()) expected = expected + addend.to(at::kDouble);
    const double rounding = found.scalar_type() == at::kBFloat16 ? 1.0 / 256 : 1e-6;
    const at::Tensor bound = size * 1e-5 + expected.abs() * rounding;
    EXPECT_TRUE(found.to(at::kDouble).sub(expected).abs().le(bound).all().item<bool>());
}

}  // namespace argosy::ops
