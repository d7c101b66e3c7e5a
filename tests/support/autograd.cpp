#include "support/autograd.h"

#include <c10/core/InferenceMode.h>

namespace argosy::testing {
namespace {

/// A copy that autograd can record: it refuses tensors made in inference mode.
at::Tensor leaf(const at::Tensor& x) {
    if (!x.is_floating_point()) return x.cpu().clone();
    return x.cpu().to(at::kDouble).clone().set_requires_grad(true);
}

}  // namespace

Differentiated differentiate(const Formula& formula, const std::vector<at::Tensor>& inputs,
                             const at::Tensor& dy) {
    const c10::InferenceMode record(false);
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& input : inputs) leaves.push_back(leaf(input));
    const at::Tensor value = formula(leaves);
    value.backward(dy.cpu().to(at::kDouble).clone());

    const at::Device place = inputs[0].device();
    Differentiated result{value.detach().to(place), {}};
    for (const at::Tensor& each : leaves) {
        const at::Tensor gradient = each.is_floating_point() ? each.grad() : at::Tensor();
        result.gradients.push_back(gradient.defined() ? gradient.to(place) : gradient);
    }
    return result;
}

}  // namespace argosy::testing
