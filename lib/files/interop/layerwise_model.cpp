#include "interop/layerwise_model.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstddef>

#include "gpu/element_type.h"
#include "interop/names.h"
#include "model/block.h"
#include "model/head.h"
#include "model/units.h"
#include "ops/numerics.h"
#include "ops/rope.h"

namespace argosy::interop {
namespace {

constexpr int64_t kBytesAtOnce = 16 << 20;  // size of one read from a tensor that is converted

void read_into(const checkpoint::TensorSource& source, const checkpoint::TensorInfo& tensor,
               int64_t first_row, const at::Tensor& out) {
    layout::Slab slab = layout::whole(tensor.shape);
    slab.offset[0] = first_row;
    slab.size[0] = out.size(0);
    source.read(tensor, slab, {static_cast<std::byte*>(out.mutable_data_ptr()), out.nbytes()});
}

/// Reads a tensor into host memory and converts it.
at::Tensor read_converted(const checkpoint::TensorSource& source, const checkpoint::TensorInfo& tensor,
                          at::ScalarType type) {
    const at::Tensor out = at::empty(tensor.shape, type);
    const at::ScalarType stored = gpu::scalar_type(tensor.type).value();
    if (stored == type) {
        read_into(source, tensor, 0, out);
        return out;
    }
    const int64_t num_rows = tensor.shape[0], row_bytes = tensor.num_bytes() / num_rows;
    std::vector<int64_t> shape = tensor.shape;
    shape[0] = std::clamp<int64_t>(kBytesAtOnce / row_bytes, 1, num_rows);
    const at::Tensor buffer = at::empty(shape, stored);
    for (int64_t row = 0; row < num_rows; row += shape[0]) {
        const int64_t count = std::min(shape[0], num_rows - row);
        const at::Tensor part = buffer.narrow(0, 0, count);
        read_into(source, tensor, row, part);
        out.narrow(0, row, count).copy_(part);
    }
    return out;
}

}  // namespace

LayerwiseModel::LayerwiseModel(const checkpoint::TensorSource& source, const model::ModelSpec& spec,
                               const at::TensorOptions& options, std::optional<int64_t> longest_sequence)
    : source_(source),
      spec_(spec),
      options_(options),
      longest_sequence_(longest_sequence.value_or(spec.max_context)),
      units_(model::unit_parameters(spec)) {
    check_weights(source, spec);
}

model::Weights LayerwiseModel::read_unit(int64_t unit) const {
    model::Weights weights;
    const at::ScalarType type = c10::typeMetaToScalarType(options_.dtype());
    for (const model::Parameter& parameter : units_[unit])
        weights.tensors.push_back(
            read_converted(source_, source_.at(kModelPrefix + parameter.spec.name), type));
    for (at::Tensor& weight : weights.tensors) weight = weight.to(options_.device());
    if (const auto* bias = find_router_bias(source_, spec_, /*layer=*/unit - 1))
        weights.router_bias =
            read_converted(source_, *bias, ops::accumulation_type(type)).to(options_.device());
    return weights;
}

void LayerwiseModel::run_unit(int64_t unit, std::span<const model::Batch> batches, Streams& streams) const {
    const model::Weights weights = read_unit(unit);
    if (unit == 0) {
        const model::Embedding embedding(spec_, axis_);
        for (const model::Batch& batch : batches) {
            model::Tape tape;
            streams.push_back(embedding.forward(weights, {}, batch, model::RecomputeMode::Full, tape));
        }
        return;
    }
    const at::ScalarType wide = ops::accumulation_type(c10::typeMetaToScalarType(options_.dtype()));
    int64_t longest = 0;
    for (const model::Batch& batch : batches) longest = std::max(longest, batch.seq_len);
    const model::RopeTables positions =
        model::rope_tables(spec_, longest, options_.dtype(wide), longest_sequence_);
    for (size_t i = 0; i < batches.size(); ++i) {
        const model::RopeTables rope = positions.first(batches[i].seq_len);
        const model::Block block(spec_, /*layer=*/unit - 1, axis_, context_, experts_, rope);
        model::Tape tape;
        streams[i] = block.forward(weights, streams[i], batches[i], model::RecomputeMode::Full, tape);
    }
}

std::vector<ops::SoftmaxSums> LayerwiseModel::softmax_sums(std::span<const model::Batch> batches,
                                                           const Streams& streams) const {
    const model::Weights weights = read_unit(num_units() - 1);
    const model::Head head(spec_, axis_);
    std::vector<ops::SoftmaxSums> sums;
    for (size_t i = 0; i < batches.size(); ++i) {
        sums.push_back(head.softmax_sums(weights, streams[i], batches[i]));
    }
    return sums;
}

at::Tensor LayerwiseModel::logits(const at::Tensor& rows) const {
    return model::Head(spec_, axis_).logits(read_unit(num_units() - 1), rows);
}

}  // namespace argosy::interop
