// Attention that keeps the largest score of each head, exact above a threshold, else a bound of it up to
// there: S = max(largest score, min(largest log-sum-exp of a query, threshold)). S is above the threshold
// only if a score is (ops/largest_scores.h), and does not depend on how queries and keys are divided among
// ranks.
#pragma once

#include "model/tensor_axis.h"

namespace argosy::parallel {

class WatchedAttention : public model::ContextAxis {
  public:
    /// Raises `watch.largest` [heads of this rank] to S of what attention() computes. REQUIRES: `attention`
    /// outlives this object.
    WatchedAttention(const model::ContextAxis& attention, const ops::ScoreWatch& watch)
        : attention_(attention), watch_(watch) {}

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
    const ops::ScoreWatch watch_;
};

}  // namespace argosy::parallel
