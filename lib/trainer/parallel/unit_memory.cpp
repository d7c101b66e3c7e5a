#include "parallel/unit_memory.h"

#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "layout/param_spec.h"

namespace argosy::parallel {
namespace {

/// In elements: in bf16 256 bytes, which cuBLASLt's fastest products need.
constexpr int64_t kAlignment = 128;

/// The number of parameters from `first` on that belong to the same join and have no padding between them.
size_t count_neighbours(const std::vector<UnitLayout::Parameter>& parameters, size_t first, int num_shards) {
    const auto join = model::join_of(parameters[first].role);
    size_t last = first;
    while (join && last + 1 < parameters.size() && model::join_of(parameters[last + 1].role) == join &&
           parameters[last].shape[0] % num_shards == 0) {
        ++last;
    }
    return last + 1 - first;
}

}  // namespace

UnitLayout::UnitLayout(const std::vector<Parameter>& parameters, int num_shards) {
    for (size_t first = 0, count = 0; first < parameters.size(); first += count) {
        count = count_neighbours(parameters, first, num_shards);
        Slice all{num_elements_, 0, parameters[first].shape};
        all.shape[0] = 0;
        for (size_t i = first; i < first + count; ++i) {
            std::vector<int64_t> shape = parameters[i].shape;
            all.shape[0] += shape[0];
            all.num_elements += layout::num_elements(shape);
            shape[0] = layout::chunk(shape[0], num_shards, 0).size * num_shards;
            slices_.push_back({num_elements_, layout::num_elements(shape), shape});
            num_elements_ += layout::num_elements(shape);
        }
        num_elements_ = round_up(num_elements_, kAlignment);
        const auto join = model::join_of(parameters[first].role);
        if (join && count == model::roles_of(*join).size()) joined_[*join] = all;
    }
}

at::Tensor UnitLayout::padded(const at::Tensor& buffer, size_t i) const {
    const Slice& slice = slices_[i];
    return buffer.narrow(0, slice.begin, slice.num_elements).view(slice.shape);
}

model::Joined UnitLayout::joined(const at::Tensor& buffer) const {
    model::Joined found;
    for (int i = 0; i < model::kNumJoins; ++i) {
        const auto join = static_cast<model::Join>(i);
        if (!joined_[join]) continue;
        const auto& [begin, num_elements, shape] = *joined_[join];
        found[join] = buffer.narrow(0, begin, num_elements).view(shape);
    }
    return found;
}

UnitMemory::UnitMemory(const std::vector<model::Parameter>& unit, const comm::Mesh& mesh,
                       const Precision& precision, ModelUse use, std::set<model::Role> in_float8)
    : mesh_(mesh), precision_(precision), use_(use), in_float8_(std::move(in_float8)) {
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
        ARGOSY_CHECK(num_parameters[name] == std::ssize(model::roles_of(name)),
                     "the unit has only some parameters of a join");
        join.memory =
            ParameterMemory::allocate(join.shape, precision_of(model::roles_of(name)[0]), mesh.device(), use);
    }
}

/// The memory of a parameter alone. In float8 the parameters of a join share their scale all the same.
ParameterMemory UnitMemory::allocate(const model::Parameter& parameter) {
    ParameterMemory memory =
        ParameterMemory::allocate(shape_of(parameter), precision_of(parameter.role), mesh_.device(), use_);
    if (const auto join = model::join_of(parameter.role); join && memory.scale.defined()) {
        at::Tensor& shared = scales_[*join];
        if (!shared.defined()) shared = memory.scale;
        memory.scale = shared;
    }
    return memory;
}

ParameterMemory UnitMemory::next(const model::Parameter& parameter) {
    const std::vector<int64_t> shape = shape_of(parameter);
    const auto join = model::join_of(parameter.role);
    if (!join || joins_[*join].shape.empty()) return allocate(parameter);
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

Precision UnitMemory::precision_of(model::Role role) const {
    Precision precision = precision_;
    if (in_float8_.contains(role)) precision.compute = at::ScalarType::Float8_e4m3fn;
    return precision;
}

std::vector<int64_t> UnitMemory::shape_of(const model::Parameter& parameter) const {
    return shard_shape(parameter.spec, mesh_.shape(), mesh_.coordinates());
}

}  // namespace argosy::parallel
