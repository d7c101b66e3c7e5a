#include "eval/resident_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "eval/kept_attention.h"
#include "eval/weights.h"
#include "interop/names.h"
#include "model/block.h"
#include "model/head.h"
#include "ops/numerics.h"

namespace argosy::eval {

using model::Role;

/// Rows of a batch that belong to one sequence: `count` tokens after its first `begin` tokens.
struct Segment {
    int sequence;
    int64_t begin, count;
};

/// Attention of new tokens to themselves and to all earlier ones of their sequence, whose keys and values it
/// keeps. The blocks reach it as their context axis.
class KeyValueCache : public model::ContextAxis {
  public:
    /// REQUIRES: `segments`, those of the batch that runs, outlive this object.
    KeyValueCache(const std::vector<Segment>& segments, int64_t num_sequences, int64_t max_tokens,
                  int64_t columns, const at::TensorOptions& options)
        : segments_(segments),
          keys_(at::empty({num_sequences, max_tokens, columns}, options)),
          values_(at::empty_like(keys_)) {}

    ops::AttentionOutput attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const ops::AttentionShape& shape, const at::Tensor&) const override {
        const at::Tensor y = at::empty(q.sizes(), q.options());
        int64_t row = 0;
        for (const auto& [sequence, begin, count] : segments_) {
            attend({row, begin, count}, q, k, v, shape, keys_[sequence], values_[sequence], y);
            row += count;
        }
        return {.y = y, .log_sum_exp = {}};
    }

  private:
    const std::vector<Segment>& segments_;
    at::Tensor keys_, values_;  // [sequences, max_tokens, kv_heads * head_dim]
};

namespace {

/// A tied head has the embedding's table.
std::vector<model::Weights> read_units(const checkpoint::TensorSource& source, const model::ModelSpec& spec,
                                       const at::TensorOptions& options) {
    interop::check_weights(source, spec);
    std::vector<model::Weights> units;
    for (std::vector<model::Parameter> unit : model::unit_parameters(spec)) {
        const bool is_tied_head =
            spec.tied_embeddings && static_cast<int64_t>(units.size()) > spec.num_layers;
        if (is_tied_head) {
            std::erase_if(unit, [](const model::Parameter& each) { return each.role == Role::Output; });
        }
        units.push_back(read_weights(source, unit, options));
        if (is_tied_head) units.back()[Role::Output] = units.front()[Role::Embedding];
    }
    return units;
}

}  // namespace

ResidentModel::ResidentModel(const model::ModelSpec& spec, std::vector<model::Weights> units,
                             const at::TensorOptions& options, int64_t max_tokens, int num_sequences,
                             MakeAxis make_axis)
    : spec_(spec),
      options_(options),
      max_tokens_(max_tokens),
      make_axis_(std::move(make_axis)),
      units_(std::move(units)),
      lengths_(num_sequences) {
    const at::ScalarType wide = ops::accumulation_type(c10::typeMetaToScalarType(options.dtype()));
    rope_ = model::rope_table(spec, max_tokens, options.dtype(wide));
    for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
        caches_.push_back(std::make_unique<KeyValueCache>(segments_, num_sequences, max_tokens,
                                                          units_[layer + 1][Role::Wk].size(0), options));
    }
}

ResidentModel::ResidentModel(const checkpoint::TensorSource& source, const model::ModelSpec& spec,
                             const at::TensorOptions& options, int64_t max_tokens, int num_sequences)
    : ResidentModel(spec, read_units(source, spec, options), options, max_tokens, num_sequences,
                    [](int64_t) { return std::make_unique<model::TensorAxis>(); }) {}

ResidentModel::~ResidentModel() = default;

at::Tensor ResidentModel::append(std::span<const NewTokens> new_tokens) {
    // 1. the batch: the sequences' new tokens one after another, at their positions
    std::vector<int64_t> ids, positions, last_rows;
    segments_.clear();
    for (const auto& [sequence, tokens] : new_tokens) {
        const int64_t begin = lengths_[sequence], count = std::ssize(tokens);
        ARGOSY_CHECK(count > 0 && begin + count <= max_tokens_, "{} tokens after {} of {}", count, begin,
                     max_tokens_);
        segments_.push_back({sequence, begin, count});
        ids.insert(ids.end(), tokens.begin(), tokens.end());
        for (int64_t i = 0; i < count; ++i) positions.push_back(begin + i);
        last_rows.push_back(std::ssize(ids) - 1);
        lengths_[sequence] = begin + count;
    }
    model::Batch batch{.tokens = on_device(ids), .num_sequences = 1, .seq_len = std::ssize(ids)};
    batch.positions = on_device(positions);
    // 2. the embedding and the blocks: x [rows, dim]
    const std::unique_ptr<model::TensorAxis> axis = make_axis_(batch.seq_len);
    model::Tape tape;
    at::Tensor x =
        model::Embedding(spec_, *axis).forward(units_.front(), {}, batch, model::RecomputeMode::Full, tape);
    for (int64_t layer = 0; layer < spec_.num_layers; ++layer) {
        const model::Block block(spec_, *axis, *caches_[layer], rope_);
        tape = {};
        x = block.forward(units_[layer + 1], x, batch, model::RecomputeMode::Full, tape);
    }
    // 3. the logits of each sequence's last token: this rank's columns, then all
    const at::Tensor last = axis->gather_rows(x).index_select(0, on_device(last_rows));
    const at::Tensor logits = model::Head(spec_, model::TensorAxis()).logits(units_.back(), last);
    return axis->gather_columns(logits, spec_.vocab_size).to(at::kFloat).cpu().contiguous();
}

at::Tensor ResidentModel::on_device(const std::vector<int64_t>& values) const {
    const at::Tensor tensor = at::empty({std::ssize(values)}, at::kLong);
    std::ranges::copy(values, tensor.mutable_data_ptr<int64_t>());
    return tensor.to(options_.device());
}

}  // namespace argosy::eval
