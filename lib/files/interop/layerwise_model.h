// A model whose weights stay in its files. The weights of a unit (the embedding, a block or the head) are
// read when the unit runs, and freed before those of the next unit are read. Weights therefore take the
// memory of the largest unit, and 16 MiB during conversion.
//
// Batches and streams are on one device. Weights are copied to that device after they are read; until then
// they take the same memory on the host. The caller holds the residual streams, which pass one unit after
// another:
//   run_unit(0 .. num_layers, batches, streams); softmax_sums(batches, streams)
// REQUIRES: the caller holds an ops::OpsContext.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "model/layer.h"
#include "model/model_spec.h"
#include "model/parameter.h"
#include "model/expert_axis.h"
#include "model/tensor_axis.h"
#include "ops/cross_entropy.h"

namespace argosy::interop {

/// One residual stream per batch, [tokens, dim].
using Streams = std::vector<at::Tensor>;

class LayerwiseModel {
  public:
    /// Computes everything in the type and on the device of `options`. `longest_sequence`: of all that it
    /// will compute, as of model::rope_tables(); none: the model's max_context. Throws UserError unless
    /// `source` holds the model's parameters. REQUIRES: `source` outlives this object.
    LayerwiseModel(const checkpoint::TensorSource& source, const model::ModelSpec& spec,
                   const at::TensorOptions& options, std::optional<int64_t> longest_sequence = {});

    const model::ModelSpec& spec() const { return spec_; }
    const at::TensorOptions& options() const { return options_; }
    /// Number of units: the embedding, the blocks and the head.
    int64_t num_units() const { return std::ssize(units_); }

    /// Returns the weights of a unit. All are read before the first is copied to a GPU: a copy waits for the
    /// GPU's earlier work, so the GPU computes while the host reads.
    model::Weights read_unit(int64_t unit) const;

    /// Runs the embedding, which makes the streams, or a block. REQUIRES: a batch with positions has them
    /// below its seq_len.
    void run_unit(int64_t unit, std::span<const model::Batch> batches, Streams& streams) const;

    /// Returns, for each batch, the sums that determine the log-probabilities of model::head_targets().
    std::vector<ops::SoftmaxSums> softmax_sums(std::span<const model::Batch> batches,
                                               const Streams& streams) const;
    /// Returns the logits [rows, vocab_size] of some rows of a stream.
    at::Tensor logits(const at::Tensor& rows) const;

  private:
    const checkpoint::TensorSource& source_;
    model::ModelSpec spec_;
    at::TensorOptions options_;
    int64_t longest_sequence_;
    std::vector<std::vector<model::Parameter>> units_;
    model::TensorAxis axis_;
    model::ContextAxis context_;
    model::ExpertAxis experts_;
};

}  // namespace argosy::interop
