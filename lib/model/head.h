// The end of the model: final norm, vocabulary projection and loss. Logits exist for a chunk of tokens at a
// time, so that their memory does not grow with the batch.
#pragma once

#include "model/batch.h"
#include "model/model_spec.h"
#include "model/parameter.h"
#include "model/tensor_axis.h"
#include "ops/cross_entropy.h"

namespace argosy::model {

class Head {
  public:
    /// REQUIRES: axis outlives it.
    Head(const ModelSpec& spec, const TensorAxis& axis);

    /// [tokens, this rank's columns of the vocabulary].
    at::Tensor logits(const Weights& weights, const at::Tensor& x) const;

    /// Tokens, of `num_rows`, whose logits of `num_columns` of the vocabulary exist at a time, on a device
    /// like that of `x`: chunks are about equal and of whole tiles, since each shape is another product.
    static int64_t rows_per_chunk(int64_t num_rows, int64_t num_columns, const at::Tensor& x);

    /// Without gradients: of each token, over the whole vocabulary and the same on every rank of the axis,
    /// what its loss and its target's log-probability follow from (ops/cross_entropy.h). `targets` as in
    /// Batch.
    ops::SoftmaxSums softmax_sums(const Weights& weights, const at::Tensor& x,
                                  const at::Tensor& targets) const;

    struct Loss {
        at::Tensor sum;  // of the counted tokens' losses, fp64 scalar, the same on every rank of the axis
        at::Tensor dx;   // the gradient of scale * sum
    };
    /// One pass: the loss, the gradient of x, and the head's own gradients, added to `gradients`. `scale` is
    /// a scalar in the accumulation type of x.
    Loss loss_and_input_gradient(const Weights& weights, const at::Tensor& x, const Batch& batch,
                                 const at::Tensor& scale, const Gradients& gradients) const;

  private:
    ops::SoftmaxSums sums_of_all_ranks(ops::SoftmaxSums own) const;
    /// Of this rank's columns, which become the gradient of scale * the loss.
    ops::SoftmaxSums turn_into_gradient(at::Tensor& logits, const at::Tensor& targets,
                                        const at::Tensor& scale) const;

    const ModelSpec spec_;
    const TensorAxis& axis_;
};

}  // namespace argosy::model
