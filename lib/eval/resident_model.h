// A model whose weights are all in memory, for generating tokens one after another: the keys and values of
// earlier tokens are kept, so that each token passes the model once.
// REQUIRES: the caller holds an ops::OpsContext.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
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

class ResidentModel {
  public:
    /// Reads all weights in the type and to the device of `options`. A sequence has at most `max_tokens`.
    /// Throws UserError unless `source` holds the model's parameters.
    ResidentModel(const checkpoint::TensorSource& source, const model::ModelSpec& spec,
                  const at::TensorOptions& options, int64_t max_tokens);
    ~ResidentModel();

    int64_t max_tokens() const { return max_tokens_; }

    /// Appends tokens to the sequence. Returns the logits of the token after it, [vocab_size], in fp32 on the
    /// host. REQUIRES: at least one token, and no more than fit into max_tokens().
    at::Tensor append(std::span<const uint32_t> tokens);

    /// Starts a new sequence.
    void clear();

  private:
    const model::ModelSpec spec_;
    const at::TensorOptions options_;
    const int64_t max_tokens_;
    std::vector<model::Weights> units_;  // the embedding, the blocks, the head
    model::TensorAxis axis_;
    ops::RopeTable rope_;
    std::vector<std::unique_ptr<KeyValueCache>> caches_;  // of each block
    int64_t num_tokens_ = 0;                              // of the sequence
};

}  // namespace argosy::eval
