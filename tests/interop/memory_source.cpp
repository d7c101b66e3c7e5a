#include "interop/memory_source.h"

#include <ATen/ops/empty.h>

#include <cstring>

#include "base/error.h"
#include "layout/param_spec.h"
#include "model/units.h"

namespace argosy::testing {
namespace {

ElementType element_type(at::ScalarType type) {
    switch (type) {
        case at::kDouble:
            return ElementType::Float64;
        case at::kFloat:
            return ElementType::Float32;
        case at::kBFloat16:
            return ElementType::BFloat16;
        case at::kHalf:
            return ElementType::Float16;
        case at::kLong:
            return ElementType::Int64;
        default:
            ARGOSY_CHECK(false, "a tensor of {}", toString(type));
    }
}

}  // namespace

MemorySource::MemorySource(const model::ModelSpec& spec, uint64_t seed, at::ScalarType type) {
    for (const auto& unit : model::unit_parameters(spec)) {
        for (const model::Parameter& parameter : unit) {
            const at::Tensor values = at::empty(parameter.spec.shape, at::kFloat);
            const layout::Slab whole{std::vector<int64_t>(parameter.spec.shape.size()), parameter.spec.shape};
            layout::initial_values(parameter.spec, whole, seed, values.mutable_data_ptr<float>());
            values_["model/" + parameter.spec.name] = values.to(type);
        }
    }
    list();
}

void MemorySource::list() {
    infos_.clear();
    for (const auto& [name, values] : values_) {
        infos_.push_back({name, element_type(values.scalar_type()), values.sizes().vec()});
    }
}

void MemorySource::set(const std::string& name, const at::Tensor& values) {
    values_[name] = values;
    list();
}

void MemorySource::remove(const std::string& name) {
    values_.erase(name);
    list();
}

void MemorySource::read(const checkpoint::TensorInfo& tensor, const layout::Slab& slab,
                        std::span<std::byte> out) const {
    at::Tensor values = values_.at(tensor.name);
    for (size_t dim = 0; dim < slab.offset.size(); ++dim) {
        values = values.narrow(static_cast<int64_t>(dim), slab.offset[dim], slab.size[dim]);
    }
    ARGOSY_CHECK(values.nbytes() == out.size(), "{} bytes for {} of {}", out.size(), values.nbytes(),
                 tensor.name);
    std::memcpy(out.data(), values.contiguous().const_data_ptr(), out.size());
    bytes_read_ += static_cast<int64_t>(out.size());
}

int64_t MemorySource::num_bytes() const {
    int64_t sum = 0;
    for (const checkpoint::TensorInfo& info : infos_) sum += info.num_bytes();
    return sum;
}

}  // namespace argosy::testing
