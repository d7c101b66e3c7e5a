// The element types of the numerics. Operations accept fp64, fp32, bf16 and fp16; inside, sums and
// transcendental functions run in the accumulation type and round once at the end.
#pragma once

#include <ATen/core/Tensor.h>

namespace argosy::ops {

/// fp64 for fp64, fp32 for everything else.
inline at::ScalarType accumulation_type(at::ScalarType type) {
    return type == at::kDouble ? at::kDouble : at::kFloat;
}

/// Elements of the largest tensor that should be made for a moment where x lies: on a processor such that it
/// stays near its caches, on a GPU such that passes over weights are few (2 GiB in bf16).
int64_t largest_temporary(const at::Tensor& x);

/// `x` in its accumulation type; `x` itself where it has it.
inline at::Tensor widened(const at::Tensor& x) { return x.to(accumulation_type(x.scalar_type())); }

}  // namespace argosy::ops
