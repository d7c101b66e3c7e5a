// Attention that keeps a bound of the scores of each head: the largest log-sum-exp of a query's scores. The
// bound is at least the largest score, and above it by at most the logarithm of the number of keys. All
// kernels of attention give the log-sum-exp, and it does not depend on how keys are divided among ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include "model/tensor_axis.h"

namespace argosy::parallel {

class WatchedAttention : public model::ContextAxis {
  public:
    /// Raises `bounds` [heads of this rank], in the accumulation type, by what attention() computes.
    /// REQUIRES: `attention` outlives this object.
    WatchedAttention(const model::ContextAxis& attention, const at::Tensor& bounds)
        : attention_(attention), bounds_(bounds) {}

    ops::AttentionOutput attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const ops::AttentionShape& shape,
                                   const at::Tensor& positions) const override;
    ops::AttentionGradient attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                              const at::Tensor& v, const ops::AttentionOutput& output,
                                              const ops::AttentionShape& shape,
                                              const at::Tensor& positions) const override {
        return attention_.attention_backward(dy, q, k, v, output, shape, positions);
    }

  private:
    const model::ContextAxis& attention_;
    const at::Tensor bounds_;
};

}  // namespace argosy::parallel
