// A model whose weights are all in memory, for generating tokens one after another: the keys and values of
// earlier tokens are kept, so that each token passes the model once. Several sequences may grow side by side;
// the weights are then read once for all of them.
//
// Ranks may share the model (ResidentUnits). The ranks of a tensor axis and of the pipeline stages append the
// same tokens, and all get the same logits. Ranks that gather weights from each other run the same number of
// steps: a rank without tokens to append calls append_nothing().
// REQUIRES: the caller holds an ops::OpsContext.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "interop/layerwise_model.h"
#include "model/block.h"
#include "model/expert_axis.h"
#include "model/layer.h"
#include "model/model_spec.h"
#include "model/parameter.h"
#include "model/tensor_axis.h"
#include "ops/attention.h"

namespace argosy::eval {

class KeyValueCache;

/// Rows of a batch that belong to one sequence: `count` tokens after its first `begin` tokens.
struct Segment {
    int sequence;
    int64_t begin, count;
};

/// Attention of rows that continue sequences: keeps their keys and values in `keys` and `values`, [sequences,
/// tokens, kv_heads * head_dim], and attends to all of their sequence's. `shape` has the head_dim and the
/// window. Only y of the result is defined, which suffices without a backward pass.
ops::AttentionOutput attend(std::span<const Segment> segments, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const ops::AttentionShape& shape, const at::Tensor& keys,
                            const at::Tensor& values);

/// The units of a model, numbered: the embedding, each block, the head. Their weights are in the type and on
/// the device of the computation. `rows` are those of the residual stream.
class ResidentUnits {
  public:
    virtual ~ResidentUnits() = default;

    /// Whether this rank runs the unit.
    virtual bool has(int64_t unit) const = 0;
    /// COLLECTIVE: the weights of a unit that this rank runs, or its share of them on the tensor axis. They
    /// stay until the next call. REQUIRES: all units of this rank are asked for in their order, again and
    /// again.
    virtual const model::Weights& weights(int64_t unit) = 0;
    /// The tensor axis for a batch of `num_tokens`.
    virtual std::unique_ptr<model::TensorAxis> tensor_axis(int64_t num_tokens) = 0;
    /// Called before a step that appends tokens; may throw to end the work.
    virtual void start_step() {}
    /// Passes rows on to the rank that runs `unit`, or gets them from there.
    virtual void send(const at::Tensor& /*rows*/, int64_t /*unit*/) {}
    virtual void receive(const at::Tensor& /*rows*/, int64_t /*unit*/) {}
    /// COLLECTIVE: copies the logits of the rank that runs the head to all ranks that share the sequences.
    virtual void broadcast(const at::Tensor& /*logits*/) {}
};

class ResidentModel {
  public:
    /// `options`: the type and the device of the units. A sequence has at most `max_tokens`.
    ResidentModel(const model::ModelSpec& spec, std::unique_ptr<ResidentUnits> units,
                  const at::TensorOptions& options, int64_t max_tokens, int num_sequences);
    /// Reads all weights.
    ResidentModel(const interop::LayerwiseModel& model, int64_t max_tokens, int num_sequences);
    ~ResidentModel();

    int64_t max_tokens() const { return max_tokens_; }
    int num_sequences() const { return static_cast<int>(lengths_.size()); }

    struct NewTokens {
        int sequence;
        std::span<const uint32_t> tokens;  // at least one
    };
    /// COLLECTIVE: appends tokens to different sequences. Returns the logits of the token after each of them,
    /// [new_tokens, vocab_size], in fp32 on the host. On a processor they do not depend on the other
    /// sequences. REQUIRES: no more than fit into max_tokens().
    at::Tensor append(std::span<const NewTokens> new_tokens);
    /// COLLECTIVE: this rank's part of a step that appends tokens on other ranks alone.
    void append_nothing();

    /// Starts a new sequence in place of this one.
    void clear(int sequence) { lengths_[sequence] = 0; }

  private:
    model::Batch make_batch(std::span<const NewTokens> new_tokens, std::vector<int64_t>& last_rows);
    at::Tensor run(int64_t unit, const model::TensorAxis& axis, const at::Tensor& x,
                   const model::Batch& batch);
    at::Tensor logits(const model::TensorAxis& axis, const at::Tensor& x, const at::Tensor& last_rows);
    int64_t head() const { return spec_.num_layers + 1; }
    at::Tensor on_device(const std::vector<int64_t>& values) const;

    const model::ModelSpec spec_;
    const at::TensorOptions options_;
    const int64_t max_tokens_;
    const std::unique_ptr<ResidentUnits> units_;
    model::RopeTables rope_;
    model::ExpertAxis experts_;                           // each rank has all experts
    std::vector<std::unique_ptr<KeyValueCache>> caches_;  // of each block, once it has run here
    std::vector<Segment> segments_;                       // of the batch that runs
    std::vector<int64_t> lengths_;                        // the tokens of each sequence
};

/// A row of the logits that append() returns.
inline std::span<const float> logits_of(const at::Tensor& logits, int64_t row) {
    return {logits.const_data_ptr<float>() + row * logits.size(1), static_cast<size_t>(logits.size(1))};
}

}  // namespace argosy::eval
