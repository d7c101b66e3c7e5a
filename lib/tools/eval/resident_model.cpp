#include "eval/resident_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "model/head.h"
#include "ops/numerics.h"

namespace argosy::eval {

ops::AttentionOutput attend(std::span<const Segment> segments, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const ops::AttentionShape& shape, const at::Tensor& keys,
                            const at::Tensor& values) {
    const at::Tensor y = at::empty(q.sizes(), q.options());
    int64_t row = 0;
    for (const auto& [sequence, begin, count] : segments) {
        const auto with_new = [&, begin = begin, count = count](const at::Tensor& kept, const at::Tensor& x) {
            kept.narrow(0, begin, count).copy_(x.narrow(0, row, count));
            return kept.narrow(0, 0, begin + count);
        };
        const ops::AttentionShape part{.num_sequences = 1,
                                       .q_len = count,
                                       .k_len = begin + count,
                                       .head_dim = shape.head_dim,
                                       .q_offset = begin,
                                       .window = shape.window};
        const ops::AttentionOutput found = ops::attention(
            q.narrow(0, row, count), with_new(keys[sequence], k), with_new(values[sequence], v), part);
        y.narrow(0, row, count).copy_(found.y);
        row += count;
    }
    return {.y = y, .log_sum_exp = {}};
}

/// Attention of new tokens to themselves and to all earlier ones of their sequence, whose keys and values it
/// keeps. The blocks reach it as their context axis.
class KeyValueCache : public model::ContextAxis {
  public:
    /// REQUIRES: `segments`, those of the batch that runs, outlive this object.
    KeyValueCache(const std::vector<Segment>& segments, int64_t num_sequences, int64_t max_tokens)
        : segments_(segments), num_sequences_(num_sequences), max_tokens_(max_tokens) {}

    ops::AttentionOutput attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const ops::AttentionShape& shape, const at::Tensor&) const override {
        if (!keys_.defined()) {
            keys_ = at::empty({num_sequences_, max_tokens_, k.size(1)}, k.options());
            values_ = at::empty_like(keys_);
        }
        return attend(segments_, q, k, v, shape, keys_, values_);
    }

  private:
    const std::vector<Segment>& segments_;
    int64_t num_sequences_, max_tokens_;
    /// [sequences, max_tokens, kv_heads * head_dim]; undefined before the first call.
    mutable at::Tensor keys_, values_;
};

namespace {

/// One process with all units.
class AllUnits : public ResidentUnits {
  public:
    /// A tied head has the embedding's table.
    explicit AllUnits(const interop::LayerwiseModel& model) {
        for (int64_t unit = 0; unit < model.num_units(); ++unit) weights_.push_back(model.read_unit(unit));
        if (model.spec().tied_embeddings) weights_.back().tensors.back() = weights_.front().tensors.front();
    }
    bool has(int64_t) const override { return true; }
    const model::Weights& weights(int64_t unit) override { return weights_[unit]; }
    std::unique_ptr<model::TensorAxis> tensor_axis(int64_t) override {
        return std::make_unique<model::TensorAxis>();
    }

  private:
    std::vector<model::Weights> weights_;
};

}  // namespace

ResidentModel::ResidentModel(const model::ModelSpec& spec, std::unique_ptr<ResidentUnits> units,
                             const at::TensorOptions& options, int64_t max_tokens, int num_sequences)
    : spec_(spec),
      options_(options),
      max_tokens_(max_tokens),
      units_(std::move(units)),
      caches_(spec.num_layers),
      lengths_(num_sequences) {
    const at::ScalarType wide = ops::accumulation_type(c10::typeMetaToScalarType(options.dtype()));
    rope_ = model::rope_tables(spec, max_tokens, options.dtype(wide));
}

ResidentModel::ResidentModel(const interop::LayerwiseModel& model, int64_t max_tokens, int num_sequences)
    : ResidentModel(model.spec(), std::make_unique<AllUnits>(model), model.options(), max_tokens,
                    num_sequences) {}

ResidentModel::~ResidentModel() = default;

/// The sequences' new tokens one after another, at their positions. `last_rows` gets the row of each
/// sequence's last token.
model::Batch ResidentModel::make_batch(std::span<const NewTokens> new_tokens,
                                       std::vector<int64_t>& last_rows) {
    std::vector<int64_t> ids, positions;
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
    return batch;
}

/// x [rows, dim] -> x [rows, dim]
at::Tensor ResidentModel::run(int64_t unit, const model::TensorAxis& axis, const at::Tensor& x,
                              const model::Batch& batch) {
    const model::Weights& weights = units_->weights(unit);
    model::Tape tape;
    if (unit == 0)
        return model::Embedding(spec_, axis).forward(weights, {}, batch, model::RecomputeMode::Full, tape);
    auto& cache = caches_[unit - 1];
    if (!cache) cache = std::make_unique<KeyValueCache>(segments_, num_sequences(), max_tokens_);
    return model::Block(spec_, /*layer=*/unit - 1, axis, *cache, experts_, rope_)
        .forward(weights, x, batch, model::RecomputeMode::Full, tape);
}

/// The logits of some tokens: this rank's columns, then all.
at::Tensor ResidentModel::logits(const model::TensorAxis& axis, const at::Tensor& x,
                                 const at::Tensor& last_rows) {
    const at::Tensor last = model::Head(spec_, axis).gather_rows(x).index_select(0, last_rows);
    const at::Tensor own = model::Head(spec_, model::TensorAxis()).logits(units_->weights(head()), last);
    return axis.gather_columns(own, spec_.vocab_size).to(at::kFloat).contiguous();
}

at::Tensor ResidentModel::append(std::span<const NewTokens> new_tokens) {
    units_->start_step();
    std::vector<int64_t> last_rows;
    const model::Batch batch = make_batch(new_tokens, last_rows);
    const std::unique_ptr<model::TensorAxis> axis = units_->tensor_axis(batch.seq_len);
    at::Tensor x, found = at::empty({std::ssize(new_tokens), spec_.vocab_size}, options_.dtype(at::kFloat));
    for (int64_t unit = 0; unit <= head(); ++unit) {
        if (!units_->has(unit)) continue;
        if (unit > 0 && !units_->has(unit - 1)) {
            x = at::empty({axis->largest_share(batch.seq_len), spec_.dim}, options_);
            units_->receive(x, unit - 1);
        }
        if (unit == head()) {
            found = logits(*axis, x, on_device(last_rows));
            break;
        }
        x = run(unit, *axis, x, batch);
        if (!units_->has(unit + 1)) units_->send(x, unit + 1);
    }
    units_->broadcast(found);
    return found.cpu();
}

void ResidentModel::append_nothing() {
    for (int64_t unit = 0; unit <= head(); ++unit) {
        if (units_->has(unit)) units_->weights(unit);
    }
}

at::Tensor ResidentModel::on_device(const std::vector<int64_t>& values) const {
    const at::Tensor tensor = at::empty({std::ssize(values)}, at::kLong);
    std::ranges::copy(values, tensor.mutable_data_ptr<int64_t>());
    return tensor.to(options_.device());
}

}  // namespace argosy::eval
