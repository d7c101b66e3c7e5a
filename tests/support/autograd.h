// LibTorch's autograd, the oracle of every backward. It differentiates a formula written plainly with ATen,
// in fp64, outside the inference mode of the program.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace argosy::testing {

using Formula = std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;

struct Differentiated {
    at::Tensor value;
    std::vector<at::Tensor> gradients;  // in the order of the inputs; undefined for integer ones
};

/// The formula at `inputs` (floating-point ones widened to fp64) and the gradients of sum(value * dy),
/// computed on the CPU; the results are on the device of the first input.
Differentiated differentiate(const Formula& formula, const std::vector<at::Tensor>& inputs,
                             const at::Tensor& dy);

}  // namespace argosy::testing
