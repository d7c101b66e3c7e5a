// A run of some microbatches as one graph of a GPU. What goes in and comes out has places of its own, which
// the graph reads and writes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "gpu/graph.h"
#include "model/batch.h"

namespace argosy::parallel {

class RecordedRun {
  public:
    /// Microbatches and the scale of the loss to the sum of losses.
    using Run = std::function<at::Tensor(std::span<const model::Batch>, const at::Tensor& loss_scale)>;

    /// Records `run`; nothing of it is done yet. Its memory is that of `before` too, if there is one: the two
    /// take turns, and neither leaves anything there for the other.
    RecordedRun(std::span<const model::Batch> microbatches, const at::Tensor& loss_scale, const Run& run,
                const RecordedRun* before = nullptr);
    RecordedRun(const RecordedRun&) = delete;

    /// Whether these are as many and as large as those that it was recorded with.
    bool takes(std::span<const model::Batch> microbatches) const;
    /// The graph's, by which Communicator::watched knows it.
    uint64_t number() const { return graph_->number(); }
    at::Tensor replay(std::span<const model::Batch> microbatches, const at::Tensor& loss_scale);

  private:
    std::vector<model::Batch> microbatches_;
    at::Tensor loss_scale_, loss_sum_;
    std::optional<gpu::Graph> graph_;
};

}  // namespace argosy::parallel
