#include "eval/resident_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "base/error.h"
#include "eval/weights.h"
#include "interop/names.h"
#include "model/block.h"
#include "model/head.h"
#include "ops/numerics.h"

namespace argosy::eval {

using model::Role;

/// Attention of new tokens to themselves and to all earlier ones, whose keys and values it keeps. The blocks
/// reach it as their context axis.
class KeyValueCache : public model::ContextAxis {
  public:
    KeyValueCache(int64_t max_tokens, int64_t columns, const at::TensorOptions& options)
        : keys_(at::empty({max_tokens, columns}, options)), values_(at::empty_like(keys_)) {}

    ops::AttentionOutput attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const ops::AttentionShape& shape, const at::Tensor&) const override {
        keys_.narrow(0, num_tokens_, k.size(0)).copy_(k);
        values_.narrow(0, num_tokens_, v.size(0)).copy_(v);
        const int64_t num_keys = num_tokens_ + k.size(0);
        const ops::AttentionShape all{.num_sequences = 1,
                                      .q_len = q.size(0),
                                      .k_len = num_keys,
                                      .head_dim = shape.head_dim,
                                      .q_offset = num_tokens_,
                                      .window = shape.window};
        num_tokens_ = num_keys;
        return ops::attention(q, keys_.narrow(0, 0, num_keys), values_.narrow(0, 0, num_keys), all);
    }

    void clear() { num_tokens_ = 0; }

  private:
    at::Tensor keys_, values_;        // [max_tokens, kv_heads * head_dim]
    mutable int64_t num_tokens_ = 0;  // attention() appends: a block calls it once for new tokens
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

ResidentModel::ResidentModel(const checkpoint::TensorSource& source, const model::ModelSpec& spec,
                             const at::TensorOptions& options, int64_t max_tokens)
    : spec_(spec), options_(options), max_tokens_(max_tokens), units_(read_units(source, spec, options)) {
    const at::ScalarType wide = ops::accumulation_type(c10::typeMetaToScalarType(options.dtype()));
    rope_ = model::rope_table(spec, max_tokens, options.dtype(wide));
    for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
        caches_.push_back(
            std::make_unique<KeyValueCache>(max_tokens, spec.num_kv_heads * spec.head_dim, options));
    }
}

ResidentModel::~ResidentModel() = default;

void ResidentModel::clear() {
    num_tokens_ = 0;
    for (const auto& cache : caches_) cache->clear();
}

at::Tensor ResidentModel::append(std::span<const uint32_t> tokens) {
    const int64_t count = std::ssize(tokens);
    ARGOSY_CHECK(count > 0 && num_tokens_ + count <= max_tokens_, "{} tokens after {} of {}", count,
                 num_tokens_, max_tokens_);
    // 1. the batch: one sequence, whose tokens continue at their positions
    const at::Tensor ids = at::empty({count}, at::kLong);
    std::ranges::copy(tokens, ids.mutable_data_ptr<int64_t>());
    model::Batch batch{.tokens = ids.to(options_.device()), .num_sequences = 1, .seq_len = count};
    batch.positions = at::arange(num_tokens_, num_tokens_ + count, batch.tokens.options());
    // 2. the embedding and the blocks: x [tokens, dim]
    model::Tape tape;
    at::Tensor x =
        model::Embedding(spec_, axis_).forward(units_.front(), {}, batch, model::RecomputeMode::Full, tape);
    for (int64_t layer = 0; layer < spec_.num_layers; ++layer) {
        const model::Block block(spec_, axis_, *caches_[layer], rope_);
        tape = {};
        x = block.forward(units_[layer + 1], x, batch, model::RecomputeMode::Full, tape);
    }
    num_tokens_ += count;
    // 3. the logits of the last token
    const at::Tensor last = x.narrow(0, count - 1, 1);
    return model::Head(spec_, axis_).logits(units_.back(), last).squeeze(0).to(at::kFloat).cpu();
}

}  // namespace argosy::eval
