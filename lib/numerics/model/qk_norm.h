// RMSNorm of q and k before their rotation: of each head alone, or of all heads together, which are on all
// ranks of the tensor axis.
#pragma once

#include <ATen/core/Tensor.h>

#include "model/model_spec.h"
#include "model/tensor_axis.h"

namespace argosy::model {

/// A tensor of q and one of k, [tokens, heads * head_dim] each; they may be columns of a wider matrix.
struct QueriesAndKeys {
    at::Tensor q, k;
};

class QkNorms {
  public:
    /// REQUIRES: the axis outlives the object.
    QkNorms(const ModelSpec& spec, const TensorAxis& axis) : spec_(spec), axis_(axis) {}

    struct Output {
        QueriesAndKeys y, inverse_rms;
    };
    /// COLLECTIVE, as backward(). The weights are vectors: of a head, or of this rank's heads.
    Output forward(const QueriesAndKeys& x, const QueriesAndKeys& weights) const;
    /// Writes the gradients of x to dx. Returns those of the weights.
    QueriesAndKeys backward(const QueriesAndKeys& dx, const QueriesAndKeys& dy, const QueriesAndKeys& x,
                            const QueriesAndKeys& weights, const QueriesAndKeys& inverse_rms) const;

  private:
    /// [tokens, heads, head_dim], or [tokens, 1, heads * head_dim]: what is normalised is in the last dim.
    at::Tensor grouped(const at::Tensor& x) const;
    /// Whether other ranks have parts of what is normalised.
    bool is_cut() const { return spec_.qk_norm == QkNorm::Together && axis_.degree() > 1; }
    /// Of [tokens, 1] sums each over this rank's elements: the means over the elements of all ranks.
    QueriesAndKeys means(QueriesAndKeys sums, const QueriesAndKeys& x) const;

    const ModelSpec spec_;
    const TensorAxis& axis_;
};

}  // namespace argosy::model
