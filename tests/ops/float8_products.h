// The bound of float8 products, for their tests on processors and on GPUs.
#pragma once

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

namespace argosy::ops {

/// `found` is a b + addend, of numbers in fp64, rounded once after sums in fp32.
inline void expect_product(const at::Tensor& found, const at::Tensor& a, const at::Tensor& b,
                           const at::Tensor& addend = {}) {
    at::Tensor expected = a.mm(b), size = a.abs().mm(b.abs());
    if (addend.defined()) expected = expected + addend.to(at::kDouble);
    const at::ScalarType type = found.scalar_type();
    const double rounding = type == at::kBFloat16 ? 1.0 / 256 : type == at::kHalf ? 1.0 / 1024 : 1e-6;
    const at::Tensor bound = size * 1e-5 + expected.abs() * rounding;
    EXPECT_TRUE(found.to(at::kDouble).sub(expected).abs().le(bound).all().item<bool>());
}

}  // namespace argosy::ops
