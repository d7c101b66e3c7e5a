#include "model/shared_expert.h"

#include <utility>

#include "ops/glu.h"
#include "ops/matmul.h"

namespace argosy::model {

void SharedExpertTape::drop(RecomputeMode mode) {
    if (mode != RecomputeMode::None) activation.reset();
}

void SharedExpertPlaces::declare(const ModelSpec& spec, int64_t layer, Unit& unit) {
    const int64_t hidden_dim = spec.experts->shared_hidden_dim;
    if (hidden_dim == 0) return;
    const double deviation = residual_deviation(layer);
    gate_up =
        unit.add({whole_projection("moe.shared_experts.w1.weight", hidden_dim, spec.dim, kDefaultDeviation),
                  whole_projection("moe.shared_experts.w3.weight", hidden_dim, spec.dim, deviation)},
                 "shared expert's w1, w3");
    down = unit.add({whole_projection("moe.shared_experts.w2.weight", spec.dim, hidden_dim, deviation)},
                    "shared expert's w2");
}

void SharedExpert::fill(const Weights& weights, const at::Tensor& x, SharedExpertTape& tape) const {
    if (!places_.down) return;
    if (!tape.gate_up.defined()) tape.gate_up = ops::linear(x, weights.stack(places_.gate_up));
    if (!tape.activation.defined()) tape.activation = ops::glu(tape.gate_up, activation_);
}

at::Tensor SharedExpert::project(const Weights& weights, const SharedExpertTape& tape) const {
    return places_.down ? ops::linear(tape.activation, weights[places_.down]) : at::Tensor();
}

at::Tensor SharedExpert::backward_project(const Weights& weights, const at::Tensor& dy,
                                          SharedExpertTape& tape, WeightWork& work) const {
    if (!places_.down) return {};
    const at::Tensor dactivation = ops::linear_input_gradient(dy, weights[places_.down]);
    work.add_product(places_.down, dy, std::exchange(tape.activation, {}));
    return ops::glu_backward(dactivation, std::exchange(tape.gate_up, {}), activation_);
}

at::Tensor SharedExpert::backward_input(const Weights& weights, const at::Tensor& dgate_up,
                                        const at::Tensor& x, WeightWork& work) const {
    if (!places_.down) return {};
    work.add_product(places_.gate_up, dgate_up, x);
    return ops::linear_input_gradient(dgate_up, weights.stack(places_.gate_up));
}

}  // namespace argosy::model
