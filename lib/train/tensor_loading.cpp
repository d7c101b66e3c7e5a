#include "train/tensor_loading.h"

#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "model/parameter.h"
#include "train/element_types.h"

namespace argosy::train {
namespace {

using checkpoint::TensorInfo;
using checkpoint::TensorSource;

void check_one(const TensorSource& source, const std::string& name, const std::vector<int64_t>& shape) {
    const TensorInfo& found = source.at(name);
    if (found.shape != shape) {
        throw UserError(
            "{}: {} has the shape [{}], but this model's has [{}]; load a checkpoint of the model that is "
            "trained",
            source.place(), name, fmt::join(found.shape, ", "), fmt::join(shape, ", "));
    }
    if (scalar_type(found.type)) return;
    throw UserError("{}: {} is made of {}; weights and states are f64, f32, bf16 or f16", source.place(),
                    name, h5::name(found.type));
}

/// A tensor too many is a sign of another model: untied, with biases.
void check_nothing_else(const TensorSource& source, const std::set<std::string>& weights) {
    for (const TensorInfo& tensor : source.tensors()) {
        if (!tensor.name.starts_with(weight_name("")) || weights.contains(tensor.name)) continue;
        throw UserError(
            "{}: {} is no tensor of this model, so the checkpoint is of another one; load one of the model "
            "that is "
            "trained",
            source.place(), tensor.name);
    }
}

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
    return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

void load(const TensorSource& source, const TensorInfo& stored, const HeldTensor& held) {
    if (held.slab.num_elements() == 0) return;
    if (stored.type == held.info.type) return source.read(stored, held.slab, bytes_of(held.rows));
    const at::Tensor piece = at::empty(held.rows.sizes(), *scalar_type(stored.type));
    source.read(stored, held.slab, bytes_of(piece));
    held.rows.copy_(piece);
}

}  // namespace

void check_tensors(const TensorSource& source, const model::ModelSpec& spec, Wanted wanted) {
    std::set<std::string> weights;
    for (const auto& unit : model::unit_parameters(spec)) {
        for (const model::Parameter& parameter : unit) {
            const auto& [name, shape] = std::tie(parameter.spec.name, parameter.spec.shape);
            check_one(source, weight_name(name), shape);
            weights.insert(weight_name(name));
            if (wanted == Wanted::Weights) continue;
            check_one(source, first_moment_name(name), shape);
            check_one(source, second_moment_name(name), shape);
        }
    }
    check_nothing_else(source, weights);
}

std::string conversions(const TensorSource& source, std::span<const HeldTensor> tensors) {
    std::set<std::string> kinds;
    for (const HeldTensor& held : tensors) {
        const TensorInfo& stored = source.at(held.info.name);
        if (stored.type == held.info.type) continue;
        const std::string what = held.info.name.substr(0, held.info.name.find('/'));
        kinds.insert(fmt::format("{}: {} becomes {}", what, h5::name(stored.type), h5::name(held.info.type)));
    }
    return fmt::format("{}", fmt::join(kinds, ", "));
}

void load_tensors(const TensorSource& source, std::span<const HeldTensor> tensors) {
    const c10::InferenceMode guard;  // as the thread that made the tensors
    std::map<std::string, const HeldTensor*> by_name;
    for (const HeldTensor& held : tensors) by_name[held.info.name] = &held;
    for (const TensorInfo& stored : source.tensors()) {
        const auto held = by_name.find(stored.name);
        if (held != by_name.end()) load(source, stored, *held->second);
    }
}

}  // namespace argosy::train
