// The axes of the mesh that a layer sees: TensorAxis and ContextAxis.
//
// Tensor and sequence parallelism: between blocks a rank holds its share of the rows (tokens) of the residual
// stream. Inside attention and feed-forward the rank holds all rows, but only its share of the heads or
// hidden columns. A TensorAxis converts between the two forms: alone (gather_rows, reduce_rows), or together
// with the adjacent matrix product (column, row). The base class is for one device: a rank holds everything,
// and nothing communicates. The classes in parallel/tensor_parallel.h communicate.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

#include "layout/param_spec.h"
#include "ops/attention.h"
#include "ops/matmul.h"

namespace argosy::model {

/// Rows that are gathered from all ranks, or summed over all ranks, on their way to this rank.
class ComingRows {
  public:
    virtual ~ComingRows() = default;
    /// Waits for them.
    virtual at::Tensor take() = 0;
};

class TensorAxis {
  public:
    virtual ~TensorAxis() = default;

    /// This rank's share of n items that are cut over the axis, such as the vocabulary.
    virtual layout::Range share(int64_t n) const { return {0, n}; }
    /// The largest share of any rank. Ranks that must run the same number of chunks compute that number from
    /// the largest share.
    virtual int64_t largest_share(int64_t n) const { return n; }

    /// Whether reduce_rows() sums over several ranks.
    virtual bool sums() const { return false; }
    /// COLLECTIVE: this rank's rows -> all rows.
    virtual at::Tensor gather_rows(const at::Tensor& x) const { return x; }
    /// COLLECTIVE: starts gather_rows(x). x may also have equally many of the rows of each rank.
    virtual std::unique_ptr<ComingRows> start_gather(const at::Tensor& x) const {
        return std::make_unique<RowsHere>(x);
    }
    /// COLLECTIVE: all rows, a partial sum on each rank -> this rank's rows of the sum.
    virtual at::Tensor reduce_rows(const at::Tensor& partial) const { return partial; }
    /// COLLECTIVE: starts reduce_rows(partial), which returns `num_rows` rows.
    virtual std::unique_ptr<ComingRows> start_reduce(const at::Tensor& partial, int64_t /*num_rows*/) const {
        return std::make_unique<RowsHere>(partial);
    }
    /// The pieces of each rank's rows that the head takes one after the other; the next piece is gathered,
    /// and the piece before is reduced, meanwhile. A single piece does not overlap.
    virtual std::vector<layout::Range> pieces(int64_t num_rows) const { return {{0, num_rows}}; }
    /// Returns the targets of the gathered rows of a piece, from those of all tokens; -1 for a row without a
    /// token.
    virtual at::Tensor targets_of(const layout::Range& /*piece*/, const at::Tensor& targets) const {
        return targets;
    }
    /// COLLECTIVE: this rank's columns, share(num_columns), -> all columns.
    virtual at::Tensor gather_columns(const at::Tensor& x, int64_t /*num_columns*/) const { return x; }
    /// COLLECTIVE: element-wise sum or maximum over the ranks of the axis, in place.
    virtual void sum(at::Tensor&) const {}
    virtual void max(at::Tensor&) const {}

    // COLLECTIVE: linear layers whose outputs are cut over the axis: y = x_all W^T + b. x and dx have this
    // rank's rows; y and dy have all rows, and the outputs of all layers of the stack side by side. The
    // weights' gradients need x_all, which model::WeightWork gathers.
    virtual at::Tensor column(const at::Tensor& x, const ops::Stack& weight, const ops::Stack& bias) const {
        return ops::linear(gather_rows(x), weight, bias);
    }
    /// Returns dx.
    virtual at::Tensor column_backward(const at::Tensor& dy, const ops::Stack& weight) const {
        return reduce_rows(ops::linear_input_gradient(dy, weight));
    }

    // COLLECTIVE: linear layers whose inputs are cut over the axis: y = b + sum over ranks of x W^T. x has
    // all rows; y and dy have this rank's rows. Every rank has the whole bias b, which may be undefined, and
    // adds it to its rows; so the gradient of b is a partial sum on each rank: the sum of the rows of dy.
    struct RowGradient {
        at::Tensor dx;      // all rows
        at::Tensor dy_all;  // all rows, for the weight's gradient
    };
    /// Returns residual + y.
    virtual at::Tensor row(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           const at::Tensor& residual) const {
        if (!sums()) return ops::add_linear(residual, x, weight, bias);
        at::Tensor y = reduce_rows(ops::linear(x, weight)).add_(residual);
        return bias.defined() ? y.add_(bias) : y;
    }
    virtual RowGradient row_backward(const at::Tensor& dy, const at::Tensor& weight) const {
        const at::Tensor dy_all = gather_rows(dy);
        return {ops::linear_input_gradient(dy_all, weight), dy_all};
    }

  private:
    class RowsHere : public ComingRows {
      public:
        explicit RowsHere(at::Tensor rows) : rows_(std::move(rows)) {}
        at::Tensor take() override { return std::move(rows_); }

      private:
        at::Tensor rows_;
    };
};

/// Context parallelism: each rank of the axis holds a part of every sequence. Only attention needs the keys
/// and values of other ranks. The base class is for whole sequences; parallel::ContextParallelAxis
/// communicates.
class ContextAxis {
  public:
    virtual ~ContextAxis() = default;

    /// COLLECTIVE: as ops::attention. `shape` is that of this rank's tokens: q_len == k_len, the number of
    /// this rank's tokens of a sequence; a document ends at the end of each of its parts of a sequence.
    virtual ops::AttentionOutput attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                           const ops::AttentionShape& shape,
                                           const at::Tensor& positions) const {
        return ops::attention(q, k, v, shape, positions);
    }
    /// COLLECTIVE: the gradients of this rank's q, k and v.
    virtual ops::AttentionGradient attention_backward(const at::Tensor& dy, const at::Tensor& q,
                                                      const at::Tensor& k, const at::Tensor& v,
                                                      const ops::AttentionOutput& output,
                                                      const ops::AttentionShape& shape,
                                                      const at::Tensor& positions) const {
        return ops::attention_backward(dy, q, k, v, output, shape, positions);
    }
};

}  // namespace argosy::model
