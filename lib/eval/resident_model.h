// A model whose weights are all in memory, for generating tokens one after another: the keys and values of
// earlier tokens are kept, so that each token passes the model once. Several sequences may grow side by side;
// the weights are then read once for all of them. The ranks of a tensor axis may share the weights: they then
// append the same tokens, and all have the same logits.
// REQUIRES: the caller holds an ops::OpsContext.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "model/model_spec.h"
#include "model/parameter.h"
#include "model/tensor_axis.h"
#include "ops/rope.h"

namespace argosy::eval {

class KeyValueCache;
struct Segment;

class ResidentModel {
  public:
    /// Makes the TensorAxis for a batch of `num_tokens`.
    using MakeAxis = std::function<std::unique_ptr<model::TensorAxis>(int64_t num_tokens)>;

    /// `units`: the weights of the embedding, of each block and of the head, or this rank's share of them on
    /// the axis, in the type and on the device of `options`. A sequence has at most `max_tokens`.
    ResidentModel(const model::ModelSpec& spec, std::vector<model::Weights> units,
                  const at::TensorOptions& options, int64_t max_tokens, int num_sequences,
                  MakeAxis make_axis);
    /// Reads all weights. Throws UserError unless `source` holds the model's parameters.
    ResidentModel(const checkpoint::TensorSource& source, const model::ModelSpec& spec,
                  const at::TensorOptions& options, int64_t max_tokens, int num_sequences = 1);
    ~ResidentModel();

    int64_t max_tokens() const { return max_tokens_; }
    int num_sequences() const { return static_cast<int>(lengths_.size()); }

    struct NewTokens {
        int sequence;
        std::span<const uint32_t> tokens;  // at least one
    };
    /// Appends tokens to different sequences. Returns the logits of the token after each of them,
    /// [new_tokens, vocab_size], in fp32 on the host. On a processor they do not depend on the other
    /// sequences. COLLECTIVE over the axis. REQUIRES: no more than fit into max_tokens().
    at::Tensor append(std::span<const NewTokens> new_tokens);

    /// Starts a new sequence in place of this one.
    void clear(int sequence) { lengths_[sequence] = 0; }

  private:
    at::Tensor on_device(const std::vector<int64_t>& values) const;

    const model::ModelSpec spec_;
    const at::TensorOptions options_;
    const int64_t max_tokens_;
    const MakeAxis make_axis_;
    std::vector<model::Weights> units_;  // the embedding, the blocks, the head
    ops::RopeTable rope_;
    std::vector<std::unique_ptr<KeyValueCache>> caches_;  // of each block
    std::vector<Segment> segments_;                       // of the batch that runs
    std::vector<int64_t> lengths_;                        // the tokens of each sequence
};

/// A row of the logits that append() returns.
inline std::span<const float> logits_of(const at::Tensor& logits, int64_t row) {
    return {logits.const_data_ptr<float>() + row * logits.size(1), static_cast<size_t>(logits.size(1))};
}

}  // namespace argosy::eval
