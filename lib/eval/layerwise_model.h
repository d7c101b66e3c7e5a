// A model whose weights stay in their checkpoint: each unit's are read when it is its turn and freed before
// the next unit's. Of a block all weights are held at once, of the embedding table and the head's matrix a
// piece of rows: weights take the memory of the largest block or of a piece, whichever is more, and 16 MiB
// while they are converted. One device: batches and streams lie there, weights are copied there once they are
// read, and take that memory of the host too until they are. The residual streams, which the caller holds,
// run through one unit after another:
//   streams = embed(batches); run_block(0 .. num_layers - 1, batches, streams); softmax_sums(batches,
//   streams)
// REQUIRES: the caller holds an ops::TensorThread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "model/attention.h"
#include "model/batch.h"
#include "model/model_spec.h"
#include "model/parameter.h"
#include "model/tensor_axis.h"
#include "ops/cross_entropy.h"

namespace argosy::eval {

/// Of each batch its residual stream, [tokens, dim].
using Streams = std::vector<at::Tensor>;

class LayerwiseModel {
  public:
    /// Everything is computed in the type and on the device of `options`. UserError unless the source holds
    /// the model's parameters. REQUIRES: the source outlives it.
    LayerwiseModel(const checkpoint::TensorSource& source, const model::ModelSpec& spec,
                   const at::TensorOptions& options, int64_t piece_bytes = 32 << 20);

    const model::ModelSpec& spec() const { return spec_; }
    const at::TensorOptions& options() const { return options_; }
    /// The embedding, the blocks and the head.
    int64_t num_units() const { return spec_.num_layers + 2; }

    Streams embed(std::span<const model::Batch> batches) const;
    void run_block(int64_t layer, std::span<const model::Batch> batches, Streams& streams) const;

    /// Of each batch: what its targets' log-probabilities follow from.
    std::vector<ops::SoftmaxSums> softmax_sums(std::span<const model::Batch> batches,
                                               const Streams& streams) const;
    /// [rows, vocab_size], of some rows of a stream.
    at::Tensor logits(const at::Tensor& rows) const;

  private:
    /// Calls visit(axis, weights) for one piece of the vocabulary after another: the axis says which, and the
    /// unit's parameter `table` has its rows.
    template <class Visit>
    void for_each_piece(const std::vector<model::Parameter>& unit, model::Role table, Visit visit) const;

    const checkpoint::TensorSource& source_;
    model::ModelSpec spec_;
    at::TensorOptions options_;
    int64_t piece_bytes_;
    std::vector<std::vector<model::Parameter>> units_;
    model::TensorAxis axis_;
    model::Attention attention_;
};

}  // namespace argosy::eval
