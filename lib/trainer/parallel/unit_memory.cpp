#include "parallel/unit_memory.h"

#include <iterator>
#include <utility>

#include "base/units.h"
#include "layout/param_spec.h"

namespace argosy::parallel {
namespace {

/// In elements: in bf16 256 bytes, which cuBLASLt's fastest products need.
constexpr int64_t kAlignment = 128;

/// The number of parameters from `first` on that belong to the same join and have no padding between them.
size_t count_neighbours(const std::vector<UnitLayout::Parameter>& parameters, size_t first, int num_shards) {
    const model::Place& place = parameters[first].place;
    size_t last = first;
    while (place.is_join() && last + 1 < parameters.size() && parameters[last + 1].place == place &&
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
        const model::Place& place = parameters[first].place;
        if (place.is_join() && std::cmp_equal(count, place.count)) joined_.emplace(place.first, all);
    }
}

at::Tensor UnitLayout::padded(const at::Tensor& buffer, size_t i) const {
    const Slice& slice = slices_[i];
    return buffer.narrow(0, slice.begin, slice.num_elements).view(slice.shape);
}

model::Joined UnitLayout::joined(const at::Tensor& buffer) const {
    model::Joined found;
    for (const auto& [first, slice] : joined_)
        found.emplace(first, buffer.narrow(0, slice.begin, slice.num_elements).view(slice.shape));
    return found;
}

UnitMemory::UnitMemory(const std::vector<model::Parameter>& unit, comm::Mesh& mesh,
                       const Precision& precision, ModelUse use, std::set<int> in_float8)
    : unit_(unit), mesh_(mesh), precision_(precision), use_(use), in_float8_(std::move(in_float8)) {
    for (int number = 0; number < std::ssize(unit); number += unit[number].place.count) {
        const model::Place& place = unit[number].place;
        if (!place.is_join() || mesh.degree(unit[number].spec.shards) > 1) continue;
        std::vector<int64_t> shape = shape_of(number);
        for (int i = 1; i < place.count; ++i) shape[0] += shape_of(number + i)[0];
        joins_.emplace(number, allocate(number, shape));
    }
}

ParameterMemory UnitMemory::allocate(int number, const std::vector<int64_t>& shape) {
    Precision precision = precision_;
    if (in_float8_.contains(number)) precision.compute = at::ScalarType::Float8_e4m3fn;
    return ParameterMemory::allocate(shape, precision, mesh_.group(unit_[number].spec.shards), use_);
}

ParameterMemory UnitMemory::of(int number) {
    const std::vector<int64_t> shape = shape_of(number);
    const model::Place& place = unit_[number].place;
    if (const auto join = joins_.find(place.first); join != joins_.end()) {
        int64_t begin = 0;
        for (int i = place.first; i < number; ++i) begin += shape_of(i)[0];
        return join->second.rows(begin, shape[0]);
    }
    ParameterMemory memory = allocate(number, shape);
    // In float8 the parameters of a join share their scale all the same.
    if (memory.scale.defined()) memory.scale = scales_.emplace(place.first, memory.scale).first->second;
    return memory;
}

JoinedMemory UnitMemory::joined() const {
    JoinedMemory found;
    for (const auto& [first, memory] : joins_) {
        found.weights.emplace(first, memory.compute);
        found.gradients.emplace(first, memory.gradient);
    }
    return found;
}

std::vector<int64_t> UnitMemory::shape_of(int number) const {
    return shard_shape(unit_[number].spec, mesh_.shape(), mesh_.coordinates());
}

}  // namespace argosy::parallel
