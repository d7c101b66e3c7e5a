#include "account/held_bytes.h"

#include <set>

#include "layout/param_spec.h"
#include "ops/types.h"

namespace argosy::account {
namespace {

int64_t num_bytes(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

/// Elements of this rank's shard as ShardedParameter allocates it, padding rows included.
int64_t padded_elements(const layout::ParamSpec& spec, const comm::Mesh& mesh) {
    int64_t count = 1;
    for (const int64_t size : parallel::shard_shape(spec, mesh.shape(), mesh.coordinates())) count *= size;
    return count;
}

int64_t elements_of(const parallel::PlacedModel& placed, const comm::Mesh& mesh) {
    std::set<std::string> seen;  // a tied embedding table counts once
    int64_t elements = 0;
    for (size_t unit = 0; unit < placed.units.size(); ++unit) {
        const int stage = placed.unit_stage[unit];
        if (stage % mesh.degree(layout::Axis::Pipeline) != mesh.coordinate(layout::Axis::Pipeline)) continue;
        for (const model::Parameter& parameter : placed.units[unit]) {
            if (seen.insert(parameter.spec.name).second) elements += padded_elements(parameter.spec, mesh);
        }
    }
    return elements;
}

}  // namespace

HeldBytes held_bytes(parallel::ParallelModel& model, const optim::AdamW& optimizer) {
    HeldBytes held;
    for (const auto& parameter : model.parameters()) {
        held.weights += num_bytes(parameter->master());
        if (!parameter->compute().is_same(parameter->master()))
            held.copies += num_bytes(parameter->compute());
        held.gradients += num_bytes(parameter->gradient().sum);
    }
    for (const auto& [first, second] : optimizer.moments())
        held.moments += num_bytes(first) + num_bytes(second);
    for (const parallel::Stage& stage : model.stages()) {
        for (const parallel::ShardedUnit& unit : stage.units) {
            held.gathered += unit.gathered_bytes();
            held.gradients += unit.gradient_bytes();
        }
    }
    return held;
}

HeldBytes planned_bytes(const train::TrainerOptions& options, const comm::Mesh& mesh) {
    const int64_t elements = elements_of(place(options, mesh.shape()), mesh);
    const auto bytes = [&](at::ScalarType type) {
        return elements * static_cast<int64_t>(c10::elementSize(type));
    };
    const auto& [master, compute, reduce] = options.precision;
    const auto moments = options.step.adamw.moments.value_or(ops::accumulation_type(master));
    return {.weights = bytes(master),
            .copies = compute == master ? 0 : bytes(compute),
            .gradients = bytes(reduce),
            .moments = 2 * bytes(moments)};
}

}  // namespace argosy::account
