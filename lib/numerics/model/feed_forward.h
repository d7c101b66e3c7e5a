// The second half of a block, with its norm and the bypass of the residual stream:
//   y = x + Down(act(Gate n) * Up n)    with n = norm(x), or x
// A model may add biases after its matrices and a norm after Down. Shapes as in attention.h; hidden is this
// rank's share over the tensor axis.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/half.h"
#include "model/layer.h"
#include "model/model_spec.h"
#include "model/parameter.h"
#include "model/tensor_axis.h"

namespace argosy::model {

/// The tensors that this half keeps from forward to backward for one microbatch; each has a slot.
struct FeedForwardTape : HalfTape {
    at::Tensor gate_up;       // [tokens, 2 hidden]
    ops::Operand activation;  // [tokens, hidden]

    void drop(RecomputeMode mode);  // as AttentionTape::drop()
};

struct FeedForwardPlaces {
    HalfPlaces norms;
    Place gate_up, down, gate_up_bias, down_bias;
    void declare_matrices(const ModelSpec& spec, int64_t layer, Unit& unit);
    void declare_vectors(const ModelSpec& spec, Unit& unit);
};

class FeedForward {
  public:
    /// REQUIRES: the axis outlives the object.
    FeedForward(const ModelSpec& spec, const FeedForwardPlaces& places, const TensorAxis& axis)
        : activation_(spec.activation), places_(places), norms_(spec, places.norms, axis), axis_(axis) {}

    // They do what Attention's functions do. `activation_summed`: `summed` of the activation's cast.
    void fill(const Weights& weights, const at::Tensor& x, ops::SumOver summed,
              ops::SumOver activation_summed, FeedForwardTape& tape) const;
    /// Whether add_to() fills slots that are empty, so that a recompute needs it.
    bool must_add(const FeedForwardTape& tape) const { return norms_.must_add(tape); }
    at::Tensor add_to(const at::Tensor& x, const Weights& weights, FeedForwardTape& tape) const;
    at::Tensor backward_input(const Weights& weights, const at::Tensor& dy, const at::Tensor& x,
                              FeedForwardTape& tape, WeightWork& work) const;

  private:
    const ops::Activation activation_;
    const FeedForwardPlaces places_;
    const HalfNorms norms_;
    const TensorAxis& axis_;
};

}  // namespace argosy::model
