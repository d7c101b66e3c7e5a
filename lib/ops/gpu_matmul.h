// Products of matrices that a GPU holds, by cuBLASLt.
#pragma once

#include <ATen/core/Tensor.h>

namespace argosy::ops {

/// out = a b + bias, or out += a b; `bias` may be undefined. `out` is of the factors' type or, for bf16 and
/// fp16, fp32.
void gpu_multiply(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool accumulate,
                  const at::Tensor& bias = {});

}  // namespace argosy::ops
