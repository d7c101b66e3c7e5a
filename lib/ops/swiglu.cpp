#include "ops/swiglu.h"

#include <ATen/TensorOperators.h>

#include "ops/types.h"

namespace argosy::ops {

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
    const at::Tensor wide = widened(gate);
    return (wide.sigmoid().mul_(wide)).mul_(widened(up)).to(gate.scalar_type());
}

// With s = sigmoid(gate): d silu / d gate = s (1 + gate (1 - s)).
SwigluGradient swiglu_backward(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up) {
    const at::Tensor wide_dy = widened(dy), wide_gate = widened(gate);
    const at::Tensor sigmoid = wide_gate.sigmoid();
    const at::Tensor slope = (1 - sigmoid).mul_(wide_gate).add_(1).mul_(sigmoid);
    at::Tensor dgate = slope.mul_(wide_dy).mul_(widened(up)).to(gate.scalar_type());
    at::Tensor dup = (sigmoid * wide_gate).mul_(wide_dy).to(gate.scalar_type());
    return {std::move(dgate), std::move(dup)};
}

}  // namespace argosy::ops
