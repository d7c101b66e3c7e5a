// A transformer block of the Llama family:
//   middle = x + Wo attention(rope(Wq n), rope(Wk n), Wv n)    with n = norm(x)
//   y      = middle + Down(silu(Gate m) * Up m)                with m = norm(middle)
// A model may add biases after its matrices.
// The backward pass is written by hand. The tape (layer.h) keeps tensors from forward to backward.
#pragma once

#include <tuple>

#include "model/layer.h"
#include "model/model_spec.h"
#include "model/tensor_axis.h"
#include "ops/attention.h"
#include "ops/rope.h"

namespace argosy::model {

/// The rotations of the model's q and k for the positions 0 .. seq_len - 1.
ops::RopeTable rope_table(const ModelSpec& spec, int64_t seq_len, const at::TensorOptions& options);

class Block : public Layer {
  public:
    /// REQUIRES: the axes and rope outlive the block.
    Block(const ModelSpec& spec, const TensorAxis& axis, const ContextAxis& context,
          const ops::RopeTable& rope);

    at::Tensor forward(const Weights& weights, const at::Tensor& x, const Batch& batch, RecomputeMode mode,
                       Tape& tape) const override;
    void recompute(const Weights& weights, const Batch& batch, Tape& tape) const override;
    at::Tensor backward_input(const Weights& weights, const at::Tensor& dy, const Batch& batch, Tape& tape,
                              WeightWork& work) const override;

  private:
    // `summed`: the dim over which the products sum that will read a cast.
    std::tuple<ops::Operand, at::Tensor> normed(const at::Tensor& x, const at::Tensor& weight,
                                                const ops::Recipe& recipe, ops::SumOver summed) const;
    void fill_attention(const Weights& weights, const Batch& batch, ops::SumOver summed, Tape& tape) const;
    void fill_queries_and_keys(const Weights& weights, const Batch& batch, Tape& tape) const;
    void fill_feed_forward(const Weights& weights, ops::SumOver summed, ops::SumOver activation_summed,
                           Tape& tape) const;
    at::Tensor feed_forward_backward(const Weights& weights, const at::Tensor& dy, Tape& tape,
                                     WeightWork& work) const;
    at::Tensor attention_backward(const Weights& weights, const at::Tensor& dy, const Batch& batch,
                                  Tape& tape, WeightWork& work) const;
    at::Tensor qkv_gradient(const Weights& weights, at::Tensor doutput, const Batch& batch, Tape& tape,
                            WeightWork& work) const;
    at::Tensor heads_of(const at::Tensor& x) const;
    ops::AttentionShape attention_shape(const Batch& batch) const;

    const ModelSpec spec_;
    const TensorAxis& axis_;
    const ContextAxis& context_;
    const ops::RopeTable& rope_;
};

}  // namespace argosy::model
