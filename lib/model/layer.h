// A unit of the residual stream: the embedding and the blocks. (The head is not one: it makes the loss and
// its gradient in a single pass.) No layer knows of ranks; it is called with the weights that it is to use,
// and keeps nothing between calls but its shape.
#pragma once

#include <ATen/core/Tensor.h>

#include "model/batch.h"
#include "model/parameter.h"
#include "model/tape.h"
#include "model/weight_work.h"

namespace argosy::model {

class Layer {
  public:
    virtual ~Layer() = default;

    /// The stream after this layer; what backward will need goes on the tape, as far as `keep` says.
    virtual at::Tensor forward(const Weights& weights, const at::Tensor& x, const Batch& batch, Keep keep,
                               Tape& tape) const = 0;

    /// Fills the slots that `keep` dropped.
    virtual void recompute(const Weights& weights, const Batch& batch, Tape& tape) const = 0;

    /// The gradient of x (undefined for the embedding); the weights' part is set aside in `work`. Empties the
    /// tape.
    virtual at::Tensor backward_input(const Weights& weights, const at::Tensor& dy, const Batch& batch,
                                      Tape& tape, WeightWork& work) const = 0;
};

}  // namespace argosy::model
