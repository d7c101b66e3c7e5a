// Matrix products on a GPU, by cuBLASLt on the current stream. REQUIRES: the thread holds a TensorThread.
#pragma once

#include <ATen/core/Tensor.h>

namespace argosy::ops {

/// out = a b + bias, or out += a b with `accumulate`. `bias` may be undefined. `out` has the factors' type,
/// or fp32 for factors in bf16 or fp16.
void gpu_multiply(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool accumulate,
                  const at::Tensor& bias = {});

}  // namespace argosy::ops
