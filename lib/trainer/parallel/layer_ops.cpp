#include "parallel/layer_ops.h"

#include <utility>

#include "base/error.h"

// Shapes: rows = num_sequences * seq_len / tensor parallel degree, rounded up; activations between layers
// [rows, dim].
namespace argosy::parallel {
namespace {

at::Tensor loss(const LayerOp& op, Slot& slot) {
    // stream [rows, dim] -> sum of losses [], dx [rows, dim], with which the backward pass starts; the head
    // adds its own weights' gradients at once, or head_work keeps the tensors from which BackwardWeight
    // computes them
    const bool split = op.kind == UnitOpKind::LossInput;
    auto [sum, dx] = op.stage.head->loss_and_input_gradient(
        *op.weights, std::exchange(slot.stream, {}), op.batch, op.loss_weight, [&](model::WeightWork work) {
            if (!split) return work.run(*op.gradients);
            slot.head_work.push_back(std::move(work));
        });
    slot.gradient = std::move(dx);
    return sum;
}

void backward_weight(const LayerOp& op, Slot& slot) {
    if (!op.stage.is_head(op.unit)) return std::exchange(slot.weight_work[op.unit], {}).run(*op.gradients);
    for (model::WeightWork& each : slot.head_work) each.run(*op.gradients);
    slot.head_work.clear();
}

}  // namespace

at::Tensor run(const LayerOp& op, Slot& slot) {
    const auto layer = [&]() -> const model::Layer& { return *op.stage.layers[op.unit]; };
    switch (op.kind) {
        case UnitOpKind::Forward:
            // stream [rows, dim] -> stream [rows, dim]; the tape keeps what backward needs
            slot.stream =
                layer().forward(*op.weights, slot.stream, op.batch, op.recompute, slot.tapes[op.unit]);
            return {};
        case UnitOpKind::Recompute:
            layer().recompute(*op.weights, op.batch, slot.tapes[op.unit]);
            return {};
        case UnitOpKind::Loss:
        case UnitOpKind::LossInput:
            return loss(op, slot);
        case UnitOpKind::BackwardInput:
            // dy [rows, dim] -> dx [rows, dim]; weight_work keeps the tensors from which BackwardWeight
            // computes the weights' gradients
            slot.gradient = layer().backward_input(*op.weights, slot.gradient, op.batch, slot.tapes[op.unit],
                                                   slot.weight_work[op.unit]);
            return {};
        case UnitOpKind::BackwardWeight:
            backward_weight(op, slot);
            return {};
        default:
            throw RunError("an operation of kind {} is none of a layer", static_cast<int>(op.kind));
    }
}

}  // namespace argosy::parallel
