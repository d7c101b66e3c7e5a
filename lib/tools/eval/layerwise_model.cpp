#include "eval/layerwise_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <span>
#include <utility>

#include "eval/weights.h"
#include "interop/names.h"
#include "model/block.h"
#include "model/head.h"
#include "ops/numerics.h"
#include "ops/rope.h"

namespace argosy::eval {
namespace {

using model::Role;

/// A range of vocabulary rows, like a rank's share on a tensor axis; here one process computes all ranges in
/// turn.
class VocabularyRange : public model::TensorAxis {
  public:
    explicit VocabularyRange(const layout::Range& rows) : rows_(rows) {}
    const layout::Range& rows() const { return rows_; }
    layout::Range share(int64_t) const override { return rows_; }
    int64_t largest_share(int64_t) const override { return rows_.size; }

  private:
    layout::Range rows_;
};

/// Writes the rows of `out` whose token is in `range`, of which `weights` has the embeddings. nonzero() makes
/// the host wait for a GPU, once per batch and slab. This is cheap beside reading a slab, unless a round has
/// thousands of batches.
void embed_range(const model::Embedding& layer, const model::Weights& weights, const layout::Range& range,
                 const at::Tensor& tokens, at::Tensor& out) {
    const at::Tensor present = tokens.ge(range.begin).logical_and(tokens.lt(range.begin + range.size));
    const at::Tensor rows = present.nonzero().squeeze(1);
    if (rows.numel() == 0) return;
    model::Batch part;
    part.tokens = tokens.index_select(0, rows);
    model::Tape tape;
    out.index_copy_(0, rows, layer.forward(weights, {}, part, model::RecomputeMode::Full, tape));
}

/// Returns the first `seq_len` positions of a table.
ops::RopeTable first_positions(const ops::RopeTable& table, int64_t seq_len) {
    return {table.cos.narrow(0, 0, seq_len), table.sin.narrow(0, 0, seq_len)};
}

}  // namespace

LayerwiseModel::LayerwiseModel(const checkpoint::TensorSource& source, const model::ModelSpec& spec,
                               const at::TensorOptions& options, int64_t slab_bytes)
    : source_(source),
      spec_(spec),
      options_(options),
      slab_bytes_(slab_bytes),
      units_(model::unit_parameters(spec)) {
    interop::check_weights(source, spec);
}

template <class Visit>
void LayerwiseModel::for_each_slab(const std::vector<model::Parameter>& unit, Role table, Visit visit) const {
    const auto is_table = [&](const model::Parameter& parameter) { return parameter.role == table; };
    std::vector<model::Parameter> others = unit;
    std::erase_if(others, is_table);
    model::Weights weights = read_weights(source_, others, options_);

    const layout::ParamSpec& spec = std::ranges::find_if(unit, is_table)->spec;
    const auto row_bytes = static_cast<int64_t>(spec_.dim * options_.dtype().itemsize());
    const int64_t num_rows = std::max<int64_t>(1, slab_bytes_ / row_bytes);
    for (int64_t begin = 0; begin < spec_.vocab_size; begin += num_rows) {
        const layout::Range rows{begin, std::min(num_rows, spec_.vocab_size - begin)};
        weights[table].reset();  // freed before the next slab is read
        weights[table] = read_rows(source_, spec, rows, options_);
        visit(VocabularyRange(rows), weights);
    }
}

Streams LayerwiseModel::embed(std::span<const model::Batch> batches) const {
    Streams streams;
    for (const model::Batch& batch : batches) {
        streams.push_back(at::empty({batch.tokens.size(0), spec_.dim}, options_));
    }
    for_each_slab(units_.front(), Role::Embedding,
                  [&](const VocabularyRange& axis, const model::Weights& weights) {
                      const model::Embedding layer(spec_, axis);
                      for (size_t i = 0; i < batches.size(); ++i) {
                          embed_range(layer, weights, axis.rows(), batches[i].tokens, streams[i]);
                      }
                  });
    return streams;
}

void LayerwiseModel::run_block(int64_t layer, std::span<const model::Batch> batches, Streams& streams) const {
    const model::Weights weights = read_weights(source_, units_[layer + 1], options_);
    const at::ScalarType wide = ops::accumulation_type(c10::typeMetaToScalarType(options_.dtype()));
    int64_t longest = 0;
    for (const model::Batch& batch : batches) longest = std::max(longest, batch.seq_len);
    const ops::RopeTable positions = model::rope_table(spec_, longest, options_.dtype(wide));
    for (size_t i = 0; i < batches.size(); ++i) {
        const ops::RopeTable rope = first_positions(positions, batches[i].seq_len);
        const model::Block block(spec_, axis_, context_, rope);
        model::Tape tape;
        streams[i] = block.forward(weights, streams[i], batches[i], model::RecomputeMode::Full, tape);
    }
}

std::vector<ops::SoftmaxSums> LayerwiseModel::softmax_sums(std::span<const model::Batch> batches,
                                                           const Streams& streams) const {
    std::vector<ops::SoftmaxSums> all(batches.size());
    for_each_slab(units_.back(), Role::Output,
                  [&](const VocabularyRange& axis, const model::Weights& weights) {
                      const model::Head head(spec_, axis);
                      for (size_t i = 0; i < batches.size(); ++i) {
                          ops::SoftmaxSums sums = head.softmax_sums(weights, streams[i], batches[i]);
                          if (all[i].sums.defined()) {
                              ops::add_columns(all[i], std::move(sums));
                          } else {
                              all[i] = std::move(sums);
                          }
                      }
                  });
    return all;
}

at::Tensor LayerwiseModel::logits(const at::Tensor& rows) const {
    std::vector<at::Tensor> columns;
    for_each_slab(units_.back(), Role::Output,
                  [&](const VocabularyRange& axis, const model::Weights& weights) {
                      columns.push_back(model::Head(spec_, axis).logits(weights, rows));
                  });
    return at::cat(columns, /*dim=*/1);
}

}  // namespace argosy::eval
