// The layers that use the vocabulary: the head (final norm, vocabulary projection and loss) and the
// embedding. The loss computes logits for one chunk of tokens at a time, so their memory does not grow with
// the batch. Shapes: x [rows, dim], where rows is this rank's share of the tokens; vocab columns are this
// rank's share of the vocabulary.
#pragma once

#include <functional>

#include "model/layer.h"
#include "model/model_spec.h"
#include "model/parameter.h"
#include "model/tensor_axis.h"
#include "ops/cross_entropy.h"

namespace argosy::model {

struct HeadPlaces {
    Place norm, output;
};
/// Declares the final norm and the matrix of the output, which may be the tied table.
HeadPlaces declare_head(const ModelSpec& spec, Unit& unit);

class Head {
  public:
    /// `gather_logits`: for the loss, each rank of the axis gathers the logits of the whole vocabulary,
    /// instead of computing sums over its columns, which are then combined. REQUIRES: axis outlives the head.
    Head(const ModelSpec& spec, const TensorAxis& axis, bool gather_logits = false);

    /// COLLECTIVE over the axis: this rank's rows -> the rows of all ranks.
    at::Tensor gather_rows(const at::Tensor& x) const { return axis_.gather_rows(x, places_.output.layers); }
    /// COLLECTIVE over the axis: returns the logits of all tokens, [tokens, vocab columns].
    at::Tensor logits(const Weights& weights, const at::Tensor& x) const;

    /// The number of tokens in a chunk (ops::rows_at_once), for `num_rows` tokens and `num_columns` columns
    /// of the vocabulary on the device of `x`.
    static int64_t rows_per_chunk(int64_t num_rows, int64_t num_columns, const at::Tensor& x);

    /// COLLECTIVE over the axis, without gradients: for each token of head_targets(batch), the sums over the
    /// whole vocabulary from which the token's loss and its target's log-probability follow
    /// (ops/cross_entropy.h). The sums are the same on every rank of the axis.
    ops::SoftmaxSums softmax_sums(const Weights& weights, const at::Tensor& x, const Batch& batch) const;

    struct Loss {
        at::Tensor sum;  // sum of the counted tokens' losses: fp64 scalar, the same on every rank of the axis
        at::Tensor dx;   // gradient of scale * sum with respect to x: [rows, dim]
    };
    using TakeWork = std::function<void(WeightWork)>;
    /// COLLECTIVE over the axis: computes the loss and the gradient of x in one pass. `scale` is a scalar in
    /// the accumulation type of x. Calls `take` with the work for the head's weights: once for each chunk of
    /// tokens, once for the norm. Work that is kept holds the gradients of its chunk's logits.
    Loss loss_and_input_gradient(const Weights& weights, const at::Tensor& x, const Batch& batch,
                                 const at::Tensor& scale, const TakeWork& take) const;
    /// The same, but adds the gradients of the head's weights to `gradients` chunk by chunk.
    Loss loss_and_input_gradient(const Weights& weights, const at::Tensor& x, const Batch& batch,
                                 const at::Tensor& scale, const Gradients& gradients) const;

  private:
    /// Returns the normalised rows of all ranks: [tokens, dim].
    at::Tensor gather_normed(const Weights& weights, const at::Tensor& x) const;
    ops::SoftmaxSums sums_of_all_ranks(ops::SoftmaxSums own) const;
    /// The matrix of the output as its products take it.
    struct Projection {
        const ops::Recipe& recipe;
        ops::Stack forward, backward;
    };
    /// The loss of some tokens of all ranks, and the gradient of their normalised rows, of which each rank
    /// has a part.
    Loss loss_of_piece(const Projection& projection, const ops::Operand& normed, const at::Tensor& targets,
                       const at::Tensor& scale, const TakeWork& take) const;
    /// Replaces this rank's logits with the gradient of scale * loss. Returns the sums over all ranks.
    ops::SoftmaxSums turn_into_gradient(at::Tensor& logits, const at::Tensor& targets,
                                        const at::Tensor& scale) const;

    const ModelSpec spec_;
    const HeadPlaces places_;
    const TensorAxis& axis_;
    const bool gather_logits_;
};

/// The targets of the tokens for which softmax_sums() computes the head.
at::Tensor head_targets(const Batch& batch);

// The embedding: maps tokens to the residual stream.

/// Declares the table. Returns its place.
Place declare_embedding(const ModelSpec& spec, Unit& unit);

class Embedding : public Layer {
  public:
    /// REQUIRES: axis outlives the embedding.
    Embedding(const ModelSpec& spec, const TensorAxis& axis);

    at::Tensor forward(const Weights& weights, const at::Tensor& x, const Batch& batch, RecomputeMode mode,
                       Tape& tape) const override;
    void recompute(const Weights&, const Batch&, Tape&) const override {}
    at::Tensor backward_input(const Weights& weights, const at::Tensor& dy, const Batch& batch, Tape& tape,
                              WeightWork& work) const override;

  private:
    at::Tensor scaled(const at::Tensor& x) const;

    const Place table_;
    const TensorAxis& axis_;
    int64_t first_token_;  // first token of this rank's share of the vocabulary
    /// Rounded to float, then to the type of the stream.
    std::optional<float> scale_;
};

}  // namespace argosy::model
