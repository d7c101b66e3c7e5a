// The first half of a block, with its norm and the bypass of the residual stream:
//   y = x + Wo attention(rope(Wq n), rope(Wk n), Wv n)    with n = norm(x), or x
// A model may add biases after its matrices, norms of q and k before the rotation, and a norm after Wo.
//
// Shapes: tokens is the number of tokens of the microbatch; rows is this rank's share of the tokens between
// blocks (sequence parallelism); heads and kv_heads are this rank's shares over the tensor axis. The fused
// projection qkv is [tokens, (heads + 2 kv_heads) * head_dim], with columns in the order q, k, v.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/flops.h"
#include "model/half.h"
#include "model/layer.h"
#include "model/model_spec.h"
#include "model/parameter.h"
#include "model/qk_norm.h"
#include "model/tensor_axis.h"
#include "ops/attention.h"
#include "ops/rope.h"

namespace argosy::model {

/// The tensors that attention keeps from forward to backward for one microbatch; each has a slot.
struct AttentionTape : HalfTape {
    /// [tokens, (heads + 2 kv_heads) * head_dim]: the fused projection to q, k and v. Without QK-norm, q and
    /// k are rotated in place, in this tensor.
    at::Tensor qkv;
    QueriesAndKeys inverse_rms_of_heads;  // with QK-norm only
    /// q [tokens, heads * head_dim]; k, v [tokens, kv_heads * head_dim]: the inputs of attention. v is a view
    /// of qkv. q and k are views of qkv without QK-norm, else tensors of their own.
    at::Tensor q, k, v;
    ops::AttentionOutput result;
    ops::Operand output;  // the result's y, cast as the input

    /// Empties the slots that a mode drops; the tape of a block drops all of them in RecomputeMode::Full.
    void drop(RecomputeMode mode);
};

struct AttentionPlaces {
    HalfPlaces norms;
    Place qkv, wo, qkv_bias, output_bias, q_norm, k_norm;
    void declare_matrices(const ModelSpec& spec, int64_t layer, Unit& unit);
    void declare_vectors(const ModelSpec& spec, Unit& unit);
};
/// The FLOPs of one layer's scores, and of the values that the scores weight.
FlopsPerToken attention_flops(const ModelSpec& spec, const LayerSpec& layer, int64_t sequence_length);

class Attention {
  public:
    /// REQUIRES: the axes and rope outlive the object.
    Attention(const ModelSpec& spec, const LayerSpec& layer, const AttentionPlaces& places,
              const TensorAxis& axis, const ContextAxis& context, const ops::RopeTable& rope)
        : spec_(spec),
          layer_(layer),
          places_(places),
          norms_(spec, places.norms, axis),
          qk_norms_(spec, axis),
          axis_(axis),
          context_(context),
          rope_(rope) {}

    /// Fills the slots that are empty: after forward() all of them, in recompute() those that a mode dropped.
    /// `summed`: the dim over which the products sum that will read a cast.
    void fill(const Weights& weights, const at::Tensor& x, const Batch& batch, ops::SumOver summed,
              AttentionTape& tape) const;
    /// y, from a filled tape: [rows, dim].
    at::Tensor add_to(const at::Tensor& x, const Weights& weights, AttentionTape& tape) const;
    /// The gradient of x. Adds the weights' half to `work`. Empties the tape where that lowers the peak of
    /// memory.
    at::Tensor backward_input(const Weights& weights, const at::Tensor& dy, const at::Tensor& x,
                              const Batch& batch, AttentionTape& tape, WeightWork& work) const;

  private:
    struct Qkv;
    Qkv split(const at::Tensor& qkv, const Weights& weights) const;
    void fill_queries_and_keys(const Weights& weights, const Batch& batch, AttentionTape& tape) const;
    at::Tensor qkv_gradient(const Weights& weights, at::Tensor doutput, const Batch& batch,
                            AttentionTape& tape, WeightWork& work) const;
    QueriesAndKeys qk_weights(const Weights& weights) const;
    ops::AttentionShape shape_of(const Batch& batch) const;

    const ModelSpec spec_;
    const LayerSpec layer_;
    const AttentionPlaces places_;
    const HalfNorms norms_;
    const QkNorms qk_norms_;
    const TensorAxis& axis_;
    const ContextAxis& context_;
    const ops::RopeTable& rope_;
};

}  // namespace argosy::model
