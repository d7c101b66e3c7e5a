// Tensor and sequence parallelism as a layer sees it. Between blocks a rank holds its share of the rows
// (tokens) of the residual stream; inside attention and feed-forward it holds all rows of its share of the
// heads or hidden columns. The functions here cross that border, alone or fused with the matrix product
// beside it. This base class is one device, where every crossing is the identity; parallel/ derives the real
// one.
#pragma once

#include <ATen/core/Tensor.h>

#include "layout/param_spec.h"
#include "ops/matmul.h"

namespace argosy::model {

class TensorAxis {
  public:
    virtual ~TensorAxis() = default;

    /// This rank's piece of n things that are cut over the axis (the vocabulary).
    virtual layout::Range share(int64_t n) const { return {0, n}; }
    /// The largest piece of any rank: what ranks that work in step size their chunks by.
    virtual int64_t largest_share(int64_t n) const { return n; }

    /// COLLECTIVE: own rows -> all rows.
    virtual at::Tensor gather_rows(const at::Tensor& x) const { return x; }
    /// COLLECTIVE: all rows, a partial sum on each rank -> own rows of the sum.
    virtual at::Tensor reduce_rows(const at::Tensor& partial) const { return partial; }
    /// COLLECTIVE, in place.
    virtual void sum(at::Tensor&) const {}
    virtual void max(at::Tensor&) const {}

    // Linear layers whose outputs are cut over the axis, columns of one matrix: y = x_all W^T + b.
    struct ColumnGradient {
        at::Tensor dx;     // own rows
        at::Tensor x_all;  // all rows, for the weights' gradients
    };
    virtual at::Tensor column(const at::Tensor& x, const ops::Stack& weight, const ops::Stack& bias) const;
    virtual ColumnGradient column_backward(const at::Tensor& x, const at::Tensor& dy,
                                           const ops::Stack& weight) const;

    // Linear layers whose inputs are cut over the axis: y = sum over ranks of x W^T, own rows.
    struct RowGradient {
        at::Tensor dx;      // all rows
        at::Tensor dy_all;  // all rows, for the weight's gradient
    };
    virtual at::Tensor row(const at::Tensor& x, const at::Tensor& weight) const;
    virtual RowGradient row_backward(const at::Tensor& dy, const at::Tensor& weight) const;
};

}  // namespace argosy::model
