// y = silu(gate) * up, element by element.
#pragma once

#include <ATen/core/Tensor.h>

namespace argosy::ops {

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

struct SwigluGradient {
    at::Tensor dgate, dup;
};
SwigluGradient swiglu_backward(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up);

}  // namespace argosy::ops
