#include "resume/tensor_loading.h"

#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <fmt/ranges.h>

#include <map>
#include <set>

#include "base/error.h"
#include "setup/element_types.h"

namespace argosy::resume {
namespace {

using checkpoint::TensorInfo;
using checkpoint::TensorSource;

void check(const TensorSource& source, const HeldTensor& held) {
    const TensorInfo& found = source.at(held.info.name);
    if (found.shape != held.info.shape) {
        throw UserError(
            "{}: {} has the shape [{}], but this model's has [{}]; load a checkpoint of the model that is "
            "trained",
            source.place(), found.name, fmt::join(found.shape, ", "), fmt::join(held.info.shape, ", "));
    }
    if (setup::scalar_type(found.type)) return;
    throw UserError("{}: {} is made of {}; weights and states are f64, f32, bf16 or f16", source.place(),
                    found.name, h5::name(found.type));
}

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
    return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

void load(const TensorSource& source, const TensorInfo& stored, const HeldTensor& held) {
    if (held.slab.num_elements() == 0) return;
    if (stored.type == held.info.type && held.rows.is_cpu()) {
        return source.read(stored, held.slab, bytes_of(held.rows));
    }
    const at::Tensor piece = at::empty(held.rows.sizes(), *setup::scalar_type(stored.type));
    source.read(stored, held.slab, bytes_of(piece));
    held.rows.copy_(piece);
}

}  // namespace

void check_tensors(const TensorSource& source, std::span<const HeldTensor> tensors) {
    for (const HeldTensor& held : tensors) check(source, held);
}

void load_tensors(const TensorSource& source, std::span<const HeldTensor> tensors) {
    const c10::InferenceMode guard;  // the thread that made the tensors has it too
    check_tensors(source, tensors);
    std::map<std::string, const HeldTensor*> by_name;
    for (const HeldTensor& held : tensors) by_name[held.info.name] = &held;
    for (const TensorInfo& stored : source.tensors()) {
        const auto held = by_name.find(stored.name);
        if (held != by_name.end()) load(source, stored, *held->second);
    }
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

}  // namespace argosy::resume
