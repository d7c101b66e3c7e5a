// The interface of the embedding and the blocks, which transform the residual stream. The head has another
// interface, because it makes the loss and its gradient in a single pass. A layer knows no ranks and has no
// state between calls except its configuration: the caller passes weights and tape in.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/parameter.h"
#include "model/tape.h"
#include "model/weight_work.h"

namespace argosy::model {

// The tokens of one microbatch, as layers read them.

struct Batch {
    at::Tensor tokens;   // [num_sequences * seq_len], int64
    at::Tensor targets;  // same shape and type: the next token of each; negative if it does not count
    int64_t num_sequences = 0, seq_len = 0;
};

class Layer {
  public:
    virtual ~Layer() = default;

    /// Returns the residual stream after this layer, [rows, dim]. Stores on the tape the tensors that
    /// backward needs, except those that `mode` drops.
    virtual at::Tensor forward(const Weights& weights, const at::Tensor& x, const Batch& batch,
                               RecomputeMode mode, Tape& tape) const = 0;

    /// Fills again the slots of the tape that `mode` dropped in forward().
    virtual void recompute(const Weights& weights, const Batch& batch, Tape& tape) const = 0;

    /// Returns the gradient of x (undefined for the embedding). Stores in `work` the tensors from which the
    /// weights' gradients are computed later. Empties the tape.
    virtual at::Tensor backward_input(const Weights& weights, const at::Tensor& dy, const Batch& batch,
                                      Tape& tape, WeightWork& work) const = 0;
};

}  // namespace argosy::model
