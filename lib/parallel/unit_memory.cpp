#include "parallel/unit_memory.h"

#include <iterator>
#include <utility>

#include "base/error.h"

namespace argosy::parallel {

UnitMemory::UnitMemory(const std::vector<model::Parameter>& unit, const comm::Mesh& mesh,
                       const Precision& precision)
    : mesh_(mesh), precision_(precision) {
    if (mesh.degree(layout::kShardAxes) > 1) return;
    model::ByKey<model::Join, model::kNumJoins, int64_t> num_parameters;
    for (const model::Parameter& parameter : unit) {
        const auto join = model::join_of(parameter.role);
        if (!join) continue;
        const std::vector<int64_t> shape = shape_of(parameter);
        ++num_parameters[*join];
        std::vector<int64_t>& all = joins_[*join].shape;
        if (all.empty()) {
            all = shape;
        } else {
            all[0] += shape[0];
        }
    }
    for (int i = 0; i < model::kNumJoins; ++i) {
        const auto name = static_cast<model::Join>(i);
        Join& join = joins_[name];
        if (join.shape.empty()) continue;
        ARGOSY_CHECK(num_parameters[name] == std::ssize(model::roles_of(name)), "a part of a join");
        join.memory = ParameterMemory::allocate(join.shape, precision, mesh.device());
    }
}

ParameterMemory UnitMemory::next(const model::Parameter& parameter) {
    const std::vector<int64_t> shape = shape_of(parameter);
    const auto join = model::join_of(parameter.role);
    if (!join || joins_[*join].shape.empty()) {
        return ParameterMemory::allocate(shape, precision_, mesh_.device());
    }
    int64_t& rows_given = joins_[*join].rows_given;
    return joins_[*join].memory.rows(std::exchange(rows_given, rows_given + shape[0]), shape[0]);
}

JoinedMemory UnitMemory::joined() const {
    JoinedMemory found;
    for (int i = 0; i < model::kNumJoins; ++i) {
        const auto join = static_cast<model::Join>(i);
        found.weights[join] = joins_[join].memory.compute;
        found.gradients[join] = joins_[join].memory.gradient;
    }
    return found;
}

std::vector<int64_t> UnitMemory::shape_of(const model::Parameter& parameter) const {
    return shard_shape(parameter.spec, mesh_.shape(), mesh_.coordinates());
}

}  // namespace argosy::parallel
