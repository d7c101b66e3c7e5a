// Forward and backward over some microbatches as one recorded GPU graph. A RecordedRun owns the graph and
// fixed copies of its inputs and its output, because a graph always reads and writes the same addresses.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "gpu/graph.h"
#include "model/layer.h"

namespace argosy::parallel {

class RecordedRun {
  public:
    /// Maps microbatches and the loss scale to the sum of losses.
    using Run = std::function<at::Tensor(std::span<const model::Batch>, const at::Tensor& loss_scale)>;

    /// Records `run` without running it. The graph shares the memory of `before`, unless that is null.
    /// REQUIRES: the two graphs never run at the same time, and neither reads what the other one left there.
    RecordedRun(std::span<const model::Batch> microbatches, const at::Tensor& loss_scale, const Run& run,
                const RecordedRun* before = nullptr);
    RecordedRun(const RecordedRun&) = delete;

    /// Whether number and sizes of the microbatches are those of the recording.
    bool fits(std::span<const model::Batch> microbatches) const;
    /// The number of the graph, by which Communicator::launch_graph identifies it.
    uint64_t number() const { return graph_->number(); }
    /// Copies the inputs into the fixed copies and launches the graph on the current stream. Returns a copy
    /// of the sum of losses (fp64 scalar), valid in the order of that stream. REQUIRES: fits(microbatches).
    at::Tensor replay(std::span<const model::Batch> microbatches, const at::Tensor& loss_scale);

  private:
    std::vector<model::Batch> microbatches_;
    at::Tensor loss_scale_, loss_sum_;
    std::optional<gpu::Graph> graph_;
};

}  // namespace argosy::parallel
