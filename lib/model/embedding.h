// The embedding: maps tokens to the residual stream.
#pragma once

#include "model/layer.h"
#include "model/model_spec.h"
#include "model/tensor_axis.h"

namespace argosy::model {

class Embedding : public Layer {
  public:
    /// REQUIRES: axis outlives the embedding.
    Embedding(const ModelSpec& spec, const TensorAxis& axis);

    at::Tensor forward(const Weights& weights, const at::Tensor& x, const Batch& batch, RecomputeMode mode,
                       Tape& tape) const override;
    void recompute(const Weights&, const Batch&, Tape&) const override {}
    at::Tensor backward_input(const Weights& weights, const at::Tensor& dy, const Batch& batch, Tape& tape,
                              WeightWork& work) const override;

  private:
    const TensorAxis& axis_;
    int64_t first_token_;  // first token of this rank's share of the vocabulary
};

}  // namespace argosy::model
