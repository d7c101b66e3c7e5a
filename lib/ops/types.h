// The element types of the numerics. Operations accept fp64, fp32, bf16 and fp16; inside, sums and
// transcendental functions run in the accumulation type and round once at the end.
#pragma once

#include <ATen/core/Tensor.h>

namespace argosy::ops {

/// fp64 for fp64, fp32 for everything else.
inline at::ScalarType accumulation_type(at::ScalarType type) {
    return type == at::kDouble ? at::kDouble : at::kFloat;
}

/// Maximum number of elements that a temporary tensor on the device of x should have. On a processor such a
/// tensor stays near the caches; on a GPU passes over the weights are few (2 GiB in bf16).
int64_t largest_temporary(const at::Tensor& x);

/// Returns x in its accumulation type; x itself if it already has that type.
inline at::Tensor widened(const at::Tensor& x) { return x.to(accumulation_type(x.scalar_type())); }

}  // namespace argosy::ops
