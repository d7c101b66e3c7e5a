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
// REQUIRES: the caller holds an ops::TensorThread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "layout/param_spec.h"
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
    model::Attention attention_;
};

/// Returns the type of "fp32", "bf16" or "fp16". Throws UserError for any other name.
at::ScalarType compute_type(const std::string& name);

/// Reads rows (of the first dim) of a parameter, with the device and the type of `options`. REQUIRES: the
/// source holds the model's parameters.
at::Tensor read_rows(const checkpoint::TensorSource& source, const layout::ParamSpec& parameter,
                     const layout::Range& rows, const at::TensorOptions& options);

/// Reads whole parameters. REQUIRES: the source holds them. All are read before the first is copied to a GPU:
/// a copy waits for the GPU's earlier work, so the GPU computes while the host reads.
model::Weights read_weights(const checkpoint::TensorSource& source,
                            const std::vector<model::Parameter>& parameters,
                            const at::TensorOptions& options);

}  // namespace argosy::eval
