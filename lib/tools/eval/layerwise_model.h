// A model whose weights stay in their checkpoint. The weights of a unit are read when the unit runs, and
// freed before those of the next unit are read. A block's weights are in memory all at once; the embedding
// table and the head's matrix are read in slabs of rows. Weights therefore take the memory of the largest
// block or of one slab, whichever is larger, and 16 MiB during conversion.
//
// Batches and streams are on one device. Weights are copied to that device after they are read; until then
// they take the same memory on the host. The caller holds the residual streams, which pass one unit after
// another:
//   streams = embed(batches); run_block(0 .. num_layers - 1, batches, streams);
//   softmax_sums(batches, streams)
// REQUIRES: the caller holds an ops::OpsContext.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "model/block.h"
#include "model/layer.h"
#include "model/model_spec.h"
#include "model/parameter.h"
#include "model/tensor_axis.h"
#include "ops/cross_entropy.h"

namespace argosy::eval {

/// One residual stream per batch, [tokens, dim].
using Streams = std::vector<at::Tensor>;

class LayerwiseModel {
  public:
    /// Computes everything in the type and on the device of `options`. Throws UserError unless `source` holds
    /// the model's parameters. REQUIRES: `source` outlives this object.
    LayerwiseModel(const checkpoint::TensorSource& source, const model::ModelSpec& spec,
                   const at::TensorOptions& options, int64_t slab_bytes = 32 << 20);

    const model::ModelSpec& spec() const { return spec_; }
    const at::TensorOptions& options() const { return options_; }
    /// Number of units: the embedding, the blocks and the head.
    int64_t num_units() const { return spec_.num_layers + 2; }

    Streams embed(std::span<const model::Batch> batches) const;
    /// REQUIRES: a batch with positions has them below its seq_len.
    void run_block(int64_t layer, std::span<const model::Batch> batches, Streams& streams) const;

    /// Returns, for each batch, the sums that determine the log-probabilities of its targets.
    std::vector<ops::SoftmaxSums> softmax_sums(std::span<const model::Batch> batches,
                                               const Streams& streams) const;
    /// Returns the logits [rows, vocab_size] of some rows of a stream.
    at::Tensor logits(const at::Tensor& rows) const;

  private:
    /// Calls visit(axis, weights) for each slab of the vocabulary in turn: `axis` has the slab's range of
    /// rows, and the unit's parameter `table` holds these rows.
    template <class Visit>
    void for_each_slab(const std::vector<model::Parameter>& unit, model::Role table, Visit visit) const;

    const checkpoint::TensorSource& source_;
    model::ModelSpec spec_;
    at::TensorOptions options_;
    int64_t slab_bytes_;
    std::vector<std::vector<model::Parameter>> units_;
    model::TensorAxis axis_;
    model::ContextAxis context_;
};

}  // namespace argosy::eval
