#include "parallel/repeated_ops.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <utility>

#include "base/error.h"

namespace argosy::parallel {
namespace {

std::vector<bool> empty_sums(const model::Gradients* gradients) {
    std::vector<bool> empty;
    if (gradients == nullptr) return empty;
    for (const model::GradientSum* each : gradients->sums) empty.push_back(each->empty);
    return empty;
}

void add(std::vector<int64_t>& key, const at::Tensor& tensor) {
    key.push_back(tensor.defined() ? static_cast<int64_t>(tensor.scalar_type()) : -1);
    if (!tensor.defined()) return;
    key.push_back(tensor.dim());
    key.insert(key.end(), tensor.sizes().begin(), tensor.sizes().end());
}

void add(std::vector<int64_t>& key, const model::Joined& joined) {
    key.push_back(std::ssize(joined));
    for (const auto& [first, tensor] : joined) {
        key.push_back(first);
        add(key, tensor);
    }
}

/// Equal for layers that are alike.
std::vector<int64_t> key_of(const LayerOp& op, const at::Tensor& stream) {
    const model::Weights& weights = *op.weights;
    const model::LayerSpec& layer = op.stage.specs[op.unit];
    std::vector<int64_t> key = {op.stage.is_head(op.unit), layer.window.value_or(-1),
                                layer.rotates_as_windowed, layer.has_experts};
    add(key, stream);
    for (const at::Tensor& each : weights.tensors) add(key, each);
    for (const at::Tensor& each : weights.scales) add(key, each);
    for (const ops::Recipe* each : weights.recipes) key.push_back(reinterpret_cast<int64_t>(each));
    add(key, weights.joined);
    add(key, weights.router_bias);
    return key;
}

/// Whether nothing else holds the tensor or its memory.
bool is_alone(const at::Tensor& tensor) {
    return !tensor.defined() || (tensor.use_count() == 1 && tensor.storage().use_count() == 1);
}

model::Weights without_data(model::Weights weights) {
    const auto replace = [](at::Tensor& tensor) {
        if (tensor.defined()) tensor = at::empty_like(tensor);
    };
    for (at::Tensor& each : weights.tensors) replace(each);
    for (auto& [first, all] : weights.joined) replace(all);
    return weights;
}

/// The operations of a layer from its first one on.
std::vector<UnitOpKind> operations_of(const LayerOp& op) {
    using Kind = UnitOpKind;
    if (op.kind == Kind::Loss) return {Kind::Loss};
    if (op.stage.is_head(op.unit)) return {Kind::LossInput, Kind::BackwardWeight};
    if (op.recompute == model::RecomputeMode::None)
        return {Kind::Forward, Kind::BackwardInput, Kind::BackwardWeight};
    return {Kind::Forward, Kind::Recompute, Kind::BackwardInput, Kind::BackwardWeight};
}

}  // namespace

RepeatedOps::Shape RepeatedOps::Shape::of(const at::Tensor& tensor) {
    if (!tensor.defined()) return {};
    return {tensor.sizes().vec(), tensor.options(), true};
}

at::Tensor RepeatedOps::Shape::make() const { return defined ? at::empty(sizes, options) : at::Tensor(); }

RepeatedOps::Kind& RepeatedOps::kind_of(const LayerOp& op, const Slot& slot) {
    Kind*& kind = of_units_[{op.stage.number, op.unit}];
    if (kind != nullptr) return *kind;
    const auto [found, is_new] = kinds_.try_emplace(key_of(op, slot.stream));
    kind = &found->second;
    if (is_new) {
        kind->stream = Shape::of(slot.stream);
        records_.run_aside([&] { kind->weights = without_data(*op.weights); });
    }
    return *kind;
}

/// Runs the layer's operations up to `last` beside the run. Records those that are not recorded.
void RepeatedOps::record_passes(const LayerOp& op, Kind& kind, UnitOpKind last,
                                const std::vector<bool>& empty) {
    LayerOp each = op;
    each.weights = &kind.weights;
    Slot own;
    own.tapes.resize(op.stage.layers.size());
    own.weight_work.resize(op.stage.layers.size());
    own.stream = kind.stream.make();
    for (const UnitOpKind next : operations_of(op)) {
        each.kind = next;
        // The stream leaves the layer, and the backward pass starts from a gradient like it.
        const bool is_forward_done = next == UnitOpKind::Recompute || next == UnitOpKind::BackwardInput;
        if (is_forward_done && own.stream.defined())
            own.gradient = at::empty_like(std::exchange(own.stream, {}));
        if (next == UnitOpKind::BackwardWeight) own.gradient.reset();
        Recorded& recorded = kind.recorded[{next, makes_gradients(next) ? empty : std::vector<bool>()}];
        if (recorded.number >= 0) {
            parallel::run(each, own);
        } else {
            recorded.number = records_.record([&] { parallel::run(each, own); });
            ARGOSY_CHECK(is_alone(own.stream) && is_alone(own.gradient),
                         "a layer keeps memory of what it returns");
            recorded.stream = Shape::of(own.stream);
            recorded.gradient = Shape::of(own.gradient);
        }
        if (next == last) return;
    }
}

void RepeatedOps::record(const LayerOp& op, Kind& kind, const std::vector<bool>& empty) {
    const bool adds = makes_gradients(op.kind) || op.stage.is_head(op.unit);
    const UnitOpKind last = adds ? op.kind : UnitOpKind::BackwardInput;
    records_.run_aside([&] { record_passes(op, kind, last, empty); });
    kind.recorded.at({op.kind, empty}).empty = empty_sums(op.gradients);
}

void RepeatedOps::run(const LayerOp& op, Slot& slot) {
    Kind& kind = kind_of(op, slot);
    const std::vector<bool> empty = empty_sums(op.gradients);
    if (!kind.recorded.contains({op.kind, empty})) record(op, kind, empty);
    const Recorded& recorded = kind.recorded.at({op.kind, empty});
    records_.repeat(recorded.number, [&] {
        const bool is_loss = op.kind == UnitOpKind::Loss || op.kind == UnitOpKind::LossInput;
        if (is_loss || op.kind == UnitOpKind::Forward) slot.stream = recorded.stream.make();
        if (is_loss || op.kind == UnitOpKind::BackwardInput) slot.gradient = recorded.gradient.make();
    });
    for (size_t i = 0; i < empty.size(); ++i) op.gradients->sums[i]->empty = recorded.empty[i];
}

}  // namespace argosy::parallel
