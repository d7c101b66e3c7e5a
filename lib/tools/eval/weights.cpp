#include "eval/weights.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "gpu/element_type.h"
#include "interop/names.h"

namespace argosy::eval {
namespace {

constexpr int64_t kBytesAtOnce = 16 << 20;  // size of one read from a tensor that is converted

void read_into(const checkpoint::TensorSource& source, const checkpoint::TensorInfo& tensor,
               int64_t first_row, const at::Tensor& out) {
    layout::Slab slab = layout::whole(tensor.shape);
    slab.offset[0] = first_row;
    slab.size[0] = out.size(0);
    source.read(tensor, slab, {static_cast<std::byte*>(out.mutable_data_ptr()), out.nbytes()});
}

at::ScalarType type_of(const at::TensorOptions& options) {
    return c10::typeMetaToScalarType(options.dtype());
}

/// Reads rows of a parameter into host memory and converts them.
at::Tensor read_converted(const checkpoint::TensorSource& source, const layout::ParamSpec& parameter,
                          const layout::Range& rows, at::ScalarType type) {
    const checkpoint::TensorInfo& tensor = source.at(interop::kModelPrefix + parameter.name);
    std::vector<int64_t> shape = tensor.shape;
    shape[0] = rows.size;
    const at::Tensor out = at::empty(shape, type);
    const at::ScalarType stored = gpu::scalar_type(tensor.type).value();
    if (stored == type) {
        read_into(source, tensor, rows.begin, out);
        return out;
    }
    const int64_t row_bytes = tensor.num_bytes() / tensor.shape[0];
    shape[0] = std::clamp<int64_t>(kBytesAtOnce / row_bytes, 1, rows.size);
    const at::Tensor buffer = at::empty(shape, stored);
    for (int64_t row = 0; row < rows.size; row += shape[0]) {
        const int64_t count = std::min(shape[0], rows.size - row);
        const at::Tensor part = buffer.narrow(0, 0, count);
        read_into(source, tensor, rows.begin + row, part);
        out.narrow(0, row, count).copy_(part);
    }
    return out;
}

}  // namespace

at::ScalarType compute_type(const std::string& name) {
    if (name == "fp32") return at::kFloat;
    if (name == "bf16") return at::kBFloat16;
    if (name == "fp16") return at::kHalf;
    throw UserError("--dtype is '{}'; it must be fp32, bf16 or fp16", name);
}

at::Tensor read_rows(const checkpoint::TensorSource& source, const layout::ParamSpec& parameter,
                     const layout::Range& rows, const at::TensorOptions& options) {
    return read_converted(source, parameter, rows, type_of(options)).to(options.device());
}

model::Weights read_weights(const checkpoint::TensorSource& source,
                            const std::vector<model::Parameter>& parameters,
                            const at::TensorOptions& options) {
    model::Weights weights;
    for (const auto& [role, spec] : parameters) {
        weights[role] = read_converted(source, spec, {0, spec.shape[0]}, type_of(options));
    }
    for (const model::Parameter& parameter : parameters) {
        at::Tensor& weight = weights[parameter.role];
        weight = weight.to(options.device());
    }
    return weights;
}

}  // namespace argosy::eval
