// A rank's program as recorded GPU graphs: the parts that are recorded, and the recording of one.
//
// Each microbatch is one part if the microbatches run one after the other and nothing is under way from one
// to the next. Otherwise, the whole program is one part. Equal parts share a recording, so the number of
// recordings does not grow with the number of microbatches.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "gpu/graph.h"
#include "model/layer.h"
#include "parallel/lowering.h"

namespace argosy::parallel {

struct ProgramPart {
    std::vector<UnitOp> ops;  // the numbers of microbatches count from first_microbatch
    int first_microbatch, num_microbatches;
    /// Number of the recording. Two parts share a recording if they have the same operations and neither is
    /// the step's first part. The first part writes the gradients; later parts add to them.
    int recording;
};

/// Returns the parts in the order in which they run; at least one.
std::vector<ProgramPart> parts_of(const Program& program);

/// Forward and backward over some microbatches as one graph, with fixed copies of its inputs and its output,
/// because a graph always reads and writes the same addresses.
class RecordedRun {
  public:
    /// Maps microbatches and the weight of a loss to the sum of losses.
    using Run = std::function<at::Tensor(std::span<const model::Batch>, const at::Tensor& loss_weight)>;

    /// Records `run` without running it. The graph shares the memory of `before`, unless that is null.
    /// REQUIRES: the two graphs never run at the same time, and neither reads what the other one left there.
    RecordedRun(std::span<const model::Batch> microbatches, const at::Tensor& loss_weight, const Run& run,
                const RecordedRun* before = nullptr);
    RecordedRun(const RecordedRun&) = delete;

    /// Whether number and sizes of the microbatches are those of the recording.
    bool fits(std::span<const model::Batch> microbatches) const;
    /// The number of the graph, by which Communicator::launch_graph identifies it.
    uint64_t number() const { return graph_->number(); }
    /// Copies the inputs into the fixed copies and launches the graph on the current stream. Returns a copy
    /// of the sum of losses (fp64 scalar), valid in the order of that stream. REQUIRES: fits(microbatches).
    at::Tensor replay(std::span<const model::Batch> microbatches, const at::Tensor& loss_weight);

  private:
    std::vector<model::Batch> microbatches_;
    at::Tensor loss_weight_, loss_sum_;
    std::optional<gpu::Graph> graph_;
};

}  // namespace argosy::parallel
