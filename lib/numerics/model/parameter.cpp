#include "model/parameter.h"

#include <cmath>
#include <utility>

#include "base/error.h"

namespace argosy::model {
namespace {

/// Entry i of values that a layer may have; none: nothing.
template <class T>
T find(const std::vector<T>& values, int i) {
    return i >= 0 && std::cmp_less(i, values.size()) ? values[i] : T();
}

}  // namespace

Place Unit::add(std::vector<Parameter> parameters, const char* layers) {
    const Place place = {static_cast<int>(parameters_.size()), static_cast<int>(parameters.size()), layers};
    for (Parameter& each : parameters) {
        each.spec.name = prefix_ + each.spec.name;
        each.place = place;
        parameters_.push_back(std::move(each));
    }
    return place;
}

Parameter projection(std::string name, int64_t outputs, int64_t inputs, int cut, double deviation) {
    return {.spec = {.name = std::move(name),
                     .shape = {outputs, inputs},
                     .init = {layout::InitKind::Normal, deviation}},
            .tensor_dim = cut,
            .is_projection = true};
}

Parameter whole_projection(std::string name, int64_t outputs, int64_t inputs, double deviation) {
    Parameter parameter = projection(std::move(name), outputs, inputs, kOutputs, deviation);
    parameter.tensor_dim.reset();
    parameter.is_projection = false;
    return parameter;
}

double residual_deviation(int64_t layer) {
    return kDefaultDeviation / std::sqrt(2.0 * static_cast<double>(layer + 1));
}

Parameter vector(std::string name, int64_t size, double value) {
    return {.spec = {.name = std::move(name),
                     .shape = {size},
                     .init = {layout::InitKind::Constant, value},
                     .kind = layout::ParameterKind::Vector}};
}

Parameter cut_vector(std::string name, int64_t size, double value) {
    Parameter parameter = vector(std::move(name), size, value);
    parameter.tensor_dim = 0;
    return parameter;
}

void GradientSum::start_microbatch(int64_t microbatch) {
    if (!rounding || rounding->microbatch == microbatch) return;
    rounding->microbatch = microbatch;
    rounding->count = 0;
}

void GradientSum::add_rounded(const at::Tensor& rows, int64_t first_row) const {
    ops::add_rounded(sum.narrow(0, first_row, rows.size(0)), rows, !empty,
                     rounding->from(first_row * sum.stride(0)));
}

void GradientSum::count_gradient() {
    empty = false;
    if (rounding) ++rounding->count;
}

at::Tensor Weights::operator[](Place place) const { return find(tensors, place.first); }

const ops::Recipe& Weights::recipe(Place place) const {
    const ops::Recipe* recipe = find(recipes, place.first);
    return recipe == nullptr ? ops::kNoCasts : *recipe;
}

ops::Stack Weights::stack(Place place) const {
    ops::Stack stack{.recipe = &recipe(place), .name = place.layers};
    for (int i = place.first; i < place.first + place.count; ++i) stack.parts.push_back(tensors[i]);
    if (place.count == 1) stack.all = stack.parts[0];
    if (const auto all = joined.find(place.first); all != joined.end()) stack.all = all->second;
    if (const at::Tensor scale = find(scales, place.first); scale.defined()) {
        stack.all = {stack.whole(), scale, at::ScalarType::Undefined};
    }
    return stack;
}

std::span<GradientSum* const> Gradients::operator[](Place place) const {
    ARGOSY_CHECK(place && std::cmp_less_equal(place.first + place.count, sums.size()),
                 "no gradient of parameter {}", place.first);
    return std::span(sums).subspan(place.first, place.count);
}

}  // namespace argosy::model
