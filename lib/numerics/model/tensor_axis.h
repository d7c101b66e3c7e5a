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
#include "ops/rms_norm.h"

namespace argosy::model {

/// Rows that are gathered from all ranks, or summed over all ranks, on their way to this rank.
class ComingRows {
  public:
    virtual ~ComingRows() = default;
    /// Waits for them.
    virtual ops::Operand take() = 0;
};

class TensorAxis {
  public:
    virtual ~TensorAxis() = default;

    /// This rank's share of n items that are cut over the axis, such as the vocabulary.
    virtual layout::Range share(int64_t n) const { return {0, n}; }
    /// The largest share of any rank. Ranks that must run the same number of chunks compute that number from
    /// the largest share.
    virtual int64_t largest_share(int64_t n) const { return n; }
    /// The number of ranks.
    virtual int degree() const { return 1; }

    /// Whether reduce_rows() sums over several ranks.
    virtual bool sums() const { return false; }
    // `work` names the layers that the rows are for, or that made them (comm::Purpose).
    /// COLLECTIVE: this rank's rows -> all rows.
    at::Tensor gather_rows(const at::Tensor& x, const char* work) const { return gather(x, work).values; }
    virtual ops::Operand gather(const ops::Operand& x, const char* /*work*/) const { return x; }
    /// COLLECTIVE: starts gather(x). x may also have equally many of the rows of each rank.
    virtual std::unique_ptr<ComingRows> start_gather(const ops::Operand& x, const char* /*work*/) const {
        return std::make_unique<RowsHere>(x);
    }
    /// COLLECTIVE: all rows, a partial sum on each rank -> this rank's rows of the sum.
    virtual at::Tensor reduce_rows(const at::Tensor& partial, const char* /*work*/) const { return partial; }
    /// COLLECTIVE: starts reduce_rows(partial), which returns `num_rows` rows.
    virtual std::unique_ptr<ComingRows> start_reduce(const at::Tensor& partial, int64_t /*num_rows*/,
                                                     const char* /*work*/) const {
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
    // COLLECTIVE: element-wise sum or maximum over the ranks of the axis, in place.
    virtual void sum(at::Tensor& /*values*/, const char* /*work*/) const {}
    virtual void max(at::Tensor&) const {}
    /// COLLECTIVE: the maximum over the ranks that hold parts of a layer's matrices: also those of a context
    /// axis.
    virtual void max_of_parts(at::Tensor& values) const { max(values); }

    using SumOver = ops::SumOver;
    // COLLECTIVE: casts an operand that is cut over ranks (ops/float8.h). One scale for the whole matrix is
    // that of all ranks' parts; other scales are this rank's. `largest`: the largest magnitude of this rank's
    // part, if that is known.
    ops::Operand cast(const ops::Operand& x, const ops::Cast& cast, SumOver summed,
                      const at::Tensor& largest = {}) const {
        return x.scaled() ? x : ops::cast(x, cast, summed, largest_magnitude(x.values, cast, largest));
    }
    ops::Stack cast(const ops::Stack& weight, const ops::Cast& cast, SumOver summed) const {
        if (cast.scaling == ops::Scaling::None) return weight;
        if (weight.all.scaled()) return weight.cast(cast, summed);
        const ops::Stack whole{{}, weight.whole(), weight.recipe};  // parts that lie apart are copied once
        return whole.cast(cast, summed, largest_magnitude(whole.all.values, cast));
    }

    /// The rows of a matrix on this rank.
    enum class Rows {
        Own,  // a share, from which all ranks gather their rows
        All,
    };
    /// COLLECTIVE: x for the forward product and the weight's gradient, cast if one cast serves both.
    /// `summed`: the dim over which those of the two sum that will read it.
    ops::Operand cast_if_shared(const at::Tensor& x, const ops::Recipe& recipe, Rows rows, SumOver summed,
                                const at::Tensor& largest = {}) const {
        if (!recipe.shares_x()) return x;
        return cast(x, recipe.forward.left, stored_for(rows, summed), largest);
    }
    /// COLLECTIVE: the same of dy, in the cast of the input gradient's product.
    ops::Operand cast_dy_if_shared(const at::Tensor& dy, const ops::Recipe& recipe, Rows rows,
                                   const at::Tensor& largest = {}) const {
        if (!recipe.shares_dy()) return dy;
        return cast(dy, recipe.input_gradient.left, stored_for(rows, SumOver::Either), largest);
    }

    /// COLLECTIVE: norm(x) for the products of a layer with this recipe, and the norm's inverse_rms.
    std::pair<ops::Operand, at::Tensor> normed(const at::Tensor& x, const ops::Norm& norm,
                                               const ops::Recipe& recipe, SumOver summed) const {
        at::Tensor largest;
        const auto [y, inverse_rms] = ops::rms_norm(x, norm, recipe.shares_x() ? &largest : nullptr);
        return {cast_if_shared(y, recipe, Rows::Own, summed, largest), inverse_rms};
    }

    // COLLECTIVE: linear layers whose outputs are cut over the axis: y = x_all W^T + b. x and dx have this
    // rank's rows; y and dy have all rows, and the outputs of all layers of the stack side by side. The
    // weights' gradients need x_all, which model::WeightWork gathers.
    virtual at::Tensor column(const ops::Operand& x, const ops::Stack& weight, const ops::Stack& bias) const {
        const auto& [left, right] = weight.recipe->forward;
        return ops::linear(gather(cast(x, left, SumOver::Columns), weight.name),
                           cast(weight, right, SumOver::Columns), bias);
    }
    struct ColumnGradient {
        at::Tensor dx;    // this rank's rows
        ops::Operand dy;  // for the weight's gradient, cast if the recipe shares it
    };
    /// `largest`: the largest magnitude of dy, or undefined.
    virtual ColumnGradient column_backward(const at::Tensor& dy, const at::Tensor& largest,
                                           const ops::Stack& weight) const {
        const auto& [left, right] = weight.recipe->input_gradient;
        const ops::Operand kept = cast_dy_if_shared(dy, *weight.recipe, Rows::All, largest);
        return {reduce_rows(ops::linear_input_gradient(cast(kept, left, SumOver::Columns),
                                                       cast(weight, right, SumOver::Rows)),
                            weight.name),
                kept};
    }

    // COLLECTIVE: linear layers whose inputs are cut over the axis: y = b + sum over ranks of x W^T. x has
    // all rows; y and dy have this rank's rows. Every rank has the whole bias b, which may be undefined, and
    // adds it to its rows; so the gradient of b is a partial sum on each rank: the sum of the rows of dy.
    // The stacks have one layer.
    struct RowGradient {
        at::Tensor dx;        // all rows
        ops::Operand dy_all;  // all rows, for the weight's gradient, cast if the recipe shares them
    };
    /// Returns y, or residual + y. The order of the sum: first the parts of all ranks, then b, then the
    /// residual, which is the largest term: a narrow type rounds every term that is added to the residual at
    /// the residual's magnitude (lib/NUMERICS.md).
    at::Tensor row(const ops::Operand& x, const ops::Stack& weight, const at::Tensor& bias,
                   const at::Tensor& residual = {}) const {
        const auto& [left, right] = weight.recipe->forward;
        const ops::Operand operand = cast(x, left, SumOver::Columns);
        const ops::Stack cast_weight = cast(weight, right, SumOver::Columns);
        if (!sums() && residual.defined()) return ops::add_linear(residual, operand, cast_weight, bias);
        if (!sums()) return ops::linear(operand, cast_weight, ops::Stack::of(bias));
        at::Tensor y = row_sum(operand, cast_weight, weight.name);
        if (bias.defined()) y.add_(bias);
        return residual.defined() ? y.add_(residual) : y;
    }
    virtual RowGradient row_backward(const at::Tensor& dy, const ops::Stack& weight) const {
        const auto& [left, right] = weight.recipe->input_gradient;
        const ops::Operand dy_all = gather(cast_dy_if_shared(dy, *weight.recipe, Rows::Own), weight.name);
        return {ops::linear_input_gradient(cast(dy_all, left, SumOver::Columns),
                                           cast(weight, right, SumOver::Rows)),
                dy_all};
    }

  protected:
    /// COLLECTIVE: this rank's rows of the sum over ranks of x W^T. REQUIRES: sums().
    virtual at::Tensor row_sum(const ops::Operand& x, const ops::Stack& weight, const char* work) const {
        return reduce_rows(ops::linear(x, weight), work);
    }

  private:
    class RowsHere : public ComingRows {
      public:
        explicit RowsHere(ops::Operand rows) : rows_(std::move(rows)) {}
        ops::Operand take() override { return std::move(rows_); }

      private:
        ops::Operand rows_;
    };

    /// Rows are gathered from matrices that are stored by rows.
    SumOver stored_for(Rows rows, SumOver summed) const {
        return rows == Rows::Own && sums() ? SumOver::Columns : summed;
    }

    at::Tensor largest_magnitude(const at::Tensor& x, const ops::Cast& cast,
                                 const at::Tensor& known = {}) const {
        if (cast.scaling != ops::Scaling::Matrix) return {};
        at::Tensor largest = known.defined() ? known : ops::largest_magnitude(x);
        max_of_parts(largest);
        return largest;
    }
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
