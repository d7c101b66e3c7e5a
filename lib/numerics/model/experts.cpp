#include "model/experts.h"

#include <ATen/TensorOperators.h>

#include <utility>

#include "ops/glu.h"
#include "ops/grouped.h"
#include "ops/matmul.h"
#include "ops/numerics.h"
#include "ops/work.h"

namespace argosy::model {
namespace {

/// The matrices of all experts, one below the other.
Parameter stack(std::string name, const ExpertSpec& experts, int64_t outputs, int64_t inputs,
                double deviation) {
    const int64_t count = experts.router.num_experts;
    Parameter parameter = whole_projection(std::move(name), count * outputs, inputs, deviation);
    parameter.spec.num_matrices = count;
    parameter.reads_own_rows = true;
    parameter.multiplied = static_cast<double>(experts.router.top_k) / static_cast<double>(count);
    parameter.set = 1;
    return parameter;
}

/// The weight of each slot, in the order of their rows [slots, 1], and back.
at::Tensor slot_weights(const ops::Routing& routing) {
    return ops::permute(routing.weights.reshape({-1, 1}), routing.order, 1);
}
at::Tensor token_weights(const at::Tensor& slots, const ops::Routing& routing) {
    return ops::combine(slots, routing.order, 1).view(routing.weights.sizes());
}

/// Adds the shared expert's part, if there is one.
at::Tensor with_shared(at::Tensor sum, const at::Tensor& shared) {
    if (!shared.defined()) return sum;
    ops::note_pass({sum, shared, sum});
    return sum.add_(shared);
}

}  // namespace

void ExpertsTape::drop(RecomputeMode mode) {
    if (mode == RecomputeMode::None) return;
    input = {};
    activation.reset();
    shared.drop(mode);
}

ExpertsTape ExpertsTape::choice() const {
    ExpertsTape kept;
    kept.routing = routing;
    kept.exchange = exchange;
    kept.sequence_loads = sequence_loads;
    return kept;
}

void ExpertsPlaces::declare(const ModelSpec& spec, int64_t layer, Unit& unit) {
    const ExpertSpec& experts = *spec.experts;
    const double deviation = residual_deviation(layer);
    const bool both = spec.norms == NormPlace::Both;
    norms.declare_before(spec, both ? "ffn_pre_norm.weight" : "ffn_norm.weight", unit);
    Parameter choice =
        whole_projection("moe.router.weight", experts.router.num_experts, spec.dim, kDefaultDeviation);
    choice.spec.kind = layout::ParameterKind::Router;
    router = unit.add({std::move(choice)}, "router");
    shared.declare(spec, layer, unit);
    gate_up =
        unit.add({stack("moe.experts.w1.weight", experts, experts.hidden_dim, spec.dim, kDefaultDeviation),
                  stack("moe.experts.w3.weight", experts, experts.hidden_dim, spec.dim, deviation)},
                 "experts' w1, w3");
    down = unit.add({stack("moe.experts.w2.weight", experts, spec.dim, experts.hidden_dim, deviation)},
                    "experts' w2");
    norms.declare_after(spec, "ffn_post_norm.weight", unit);
}

at::Tensor Experts::to_slots(const at::Tensor& rows, const ops::Routing& routing) const {
    return ops::permute(rows, routing.order, router_.top_k);
}

at::Tensor Experts::sum_of_slots(const at::Tensor& slots, const ops::Routing& routing) const {
    return ops::combine(slots, routing.order, router_.top_k);
}

RoutedRows Experts::rows_of(const Batch& batch) const {
    return {layer_, tensor_axis_.share(batch.num_sequences * batch.seq_len), batch.num_sequences,
            batch.seq_len};
}

/// Not called by a recompute, which would count the tokens again.
void Experts::choose(const Weights& weights, const Batch& batch, ExpertsTape& tape) const {
    const Balancing* balancing = batch.balancing;
    const RoutedRows rows = rows_of(batch);
    tape.routing = balancing != nullptr && balancing->forced
                       ? ops::route_in_turn(tape.logits, router_, layer_ + rows.tokens.begin * router_.top_k)
                       : ops::route(tape.logits, router_, weights.router_bias);
    tape.exchange = axis_.exchange(tape.routing);
    if (balancing != nullptr) tape.sequence_loads = balancing->add(rows, tape.logits, tape.routing, router_);
}

at::Tensor Experts::logits_gradient(const at::Tensor& dweights, const Batch& batch,
                                    const ExpertsTape& tape) const {
    const at::Tensor of_weights = ops::route_backward(dweights, tape.logits, tape.routing, router_);
    if (batch.balancing == nullptr || !batch.balancing->has_gradient()) return of_weights;
    return of_weights + batch.balancing->gradient(rows_of(batch), tape.logits, tape.sequence_loads, router_);
}

void Experts::fill(const Weights& weights, const at::Tensor& x, const Batch& batch, ExpertsTape& tape) const {
    // 1. normalise, if there is a norm before: input [rows, dim]
    norms_.fill(weights, x, ops::kNoCasts, ops::SumOver::Either, tape);
    // 2. choose experts, in fp32 or in fp64: logits [rows, experts]
    if (!tape.logits.defined())
        tape.logits = ops::linear(ops::widened(tape.input.values), ops::widened(weights[places_.router]));
    if (!tape.routing.experts.defined()) choose(weights, batch, tape);
    // 3. send the rows to their experts: slots [slots, dim], weights [slots]
    std::unique_ptr<ComingSlots> coming;
    if (!tape.weights.defined()) {
        coming = axis_.start_dispatch({to_slots(tape.input.values, tape.routing), slot_weights(tape.routing)},
                                      tape.exchange);
    }
    shared_.fill(weights, tape.input.values, tape.shared);
    at::Tensor slots = tape.slots;
    if (coming) {
        const auto arrived = coming->take();
        slots = arrived[0];
        tape.weights = arrived[1].view({-1});
        if (axis_.degree() > 1) tape.slots = slots;
    }
    // 4. project to gate and up: gate_up [slots, 2 hidden]
    if (!tape.gate_up.defined())
        tape.gate_up = ops::grouped_linear(slots, weights.stack(places_.gate_up).parts, tape.exchange.counts);
    // 5. act(gate) * up * weight: activation [slots, hidden]
    if (!tape.activation.defined())
        tape.activation = ops::weighted_glu(tape.gate_up, tape.weights, activation_);
}

at::Tensor Experts::add_to(const at::Tensor& x, const Weights& weights, ExpertsTape& tape) const {
    if (tape.added.defined()) return norms_.add(x, weights, tape.added, tape);
    const at::Tensor y =
        ops::grouped_linear(tape.activation, weights.stack(places_.down).parts, tape.exchange.counts);
    const auto coming = axis_.start_combine({y}, tape.exchange);
    const at::Tensor of_shared = shared_.project(weights, tape.shared);
    const at::Tensor sum = with_shared(sum_of_slots(coming->take()[0], tape.routing), of_shared);
    return norms_.add(x, weights, sum, tape);
}

at::Tensor Experts::backward_input(const Weights& weights, const at::Tensor& dy, const at::Tensor& x,
                                   const Batch& batch, ExpertsTape& tape, WeightWork& work) const {
    const ops::Routing& routing = tape.routing;
    const SlotExchange& exchange = tape.exchange;
    const auto stacks = [&](Place place) { return weights.stack(place).parts; };
    // 1. norm after; the rows go to their experts: dslots [slots, dim]
    const at::Tensor dadded = norms_.gradient_of_added(weights, dy, tape, work);
    const auto going = axis_.start_dispatch({to_slots(dadded, routing)}, exchange);
    const at::Tensor dshared = shared_.backward_project(weights, dadded, tape.shared, work);
    const at::Tensor dslots = going->take()[0];
    // 2. down projection: dactivation [slots, hidden]
    const at::Tensor dactivation = ops::grouped_input_gradient(dslots, stacks(places_.down), exchange.counts);
    work.add_grouped_product(places_.down, dslots, std::exchange(tape.activation, {}), exchange.counts);
    // 3. act(gate) * up * weight: dgate_up [slots, 2 hidden], dweights [slots]
    const auto [dgate_up, dweights] =
        ops::weighted_glu_backward(dactivation, tape.gate_up, tape.weights, activation_);
    // 4. gate and up projections; the slots go back: dinput [rows, dim]
    const at::Tensor dgate_up_input =
        ops::grouped_input_gradient(dgate_up, stacks(places_.gate_up), exchange.counts);
    const auto coming = axis_.start_combine({dgate_up_input, dweights.view({-1, 1})}, exchange);
    const at::Tensor through_shared = shared_.backward_input(weights, dshared, tape.input.values, work);
    const auto back = coming->take();
    const at::Tensor dinput = with_shared(sum_of_slots(back[0], routing), through_shared);
    const at::Tensor slots = tape.slots.defined() ? tape.slots : to_slots(tape.input.values, routing);
    work.add_grouped_product(places_.gate_up, dgate_up, slots, exchange.counts);
    // 5. router: its part of dinput
    const at::Tensor dlogits = logits_gradient(token_weights(back[1], routing), batch, tape);
    dinput.add_(ops::linear_input_gradient(dlogits, ops::widened(weights[places_.router])));
    work.add_product(places_.router, dlogits, ops::widened(tape.input.values));
    // 6. norm before, plus the gradient of the bypass: dx [rows, dim]
    return norms_.gradient_of_x(weights, dinput, dy, x, tape, work);
}

}  // namespace argosy::model
