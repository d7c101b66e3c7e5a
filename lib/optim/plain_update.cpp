#include <ATen/TensorOperators.h>

#include "ops/own_kernels.h"
#include "optim/adamw_update.h"
#include "optim/stochastic_rounding.h"

namespace argosy::optim {
namespace {

using ops::widened;

/// The correctly rounded root, as the processor's instruction gives it. LibTorch's root in fp32, which comes
/// from MKL, is not always correctly rounded.
at::Tensor root(const at::Tensor& x) { return x.to(at::kDouble).sqrt().to(x.scalar_type()); }

/// Writes `value` to `into`, rounded stochastically if `into` is bf16.
void keep(const at::Tensor& into, const at::Tensor& value, Rounded what, const AdamW::Item& item,
          const Update& update) {
    if (into.scalar_type() != at::kBFloat16) {
        into.copy_(value);
        return;
    }
    const RoundingKey key = rounding_key(update.seed, item.name, what);
    into.copy_(rounded_stochastically(value, item.rows, update.number, key));
}

}  // namespace

void plain_update(const ItemUpdate& one) {
    // 1. scale the gradient
    const auto& [item, moments, update] = one;
    const at::Tensor gradient = item.gradient * update.gradient_factor;
    // 2. update the moments
    at::Tensor first = widened(moments.first), second = widened(moments.second);
    first = first + (gradient - first) * (1 - update.beta1);
    second = second * update.beta2 + gradient.square() * (1 - update.beta2);
    // 3. decay the weights and step against the direction
    const at::Tensor direction = first / (root(second) * update.root_factor + update.eps);
    const at::Tensor weights = widened(item.weights) * update.decay_factor - direction * update.step_size;
    // 4. round and store; the compute copy is made from the rounded weights
    keep(moments.first, first, Rounded::FirstMoment, item, update);
    keep(moments.second, second, Rounded::SecondMoment, item, update);
    keep(item.weights, weights, Rounded::Weight, item, update);
    if (!item.compute.is_same(item.weights)) item.compute.copy_(item.weights);
}

}  // namespace argosy::optim
