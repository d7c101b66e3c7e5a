// Runs a rank's program, the list of small operations from parallel/lowering.h. There is one executor for
// every schedule, layout and recompute policy. The Executor owns the activations of the microbatches in
// flight; the ParallelModel owns weights and gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/mesh.h"
#include "model/layer.h"
#include "ops/cross_entropy.h"
#include "parallel/layer_ops.h"
#include "parallel/lowering.h"
#include "parallel/parallel_model.h"
#include "parallel/recorded_run.h"
#include "parallel/repeated_ops.h"

namespace argosy::parallel {

struct ExecutorOptions {
    /// On a GPU: the second run records CUDA graphs, one for each different part of the program. The
    /// second and all later runs launch the graphs.
    bool graphs = false;
    /// Only for a program that is forward_only, on a rank with the head: called with the number of each
    /// microbatch and the result for the tokens of model::head_targets(), in place of the sum of losses.
    /// REQUIRES: no graphs.
    std::function<void(int microbatch, const ops::SoftmaxSums&)> take_softmax_sums = nullptr;
    /// Called with each operation before it runs, with its microbatch counted over the step, and with null
    /// after the last one: for timelines and benchmarks. The launch of a recorded graph makes no calls.
    std::function<void(const UnitOp*)> observer = nullptr;
    /// Called with the number of a recorded graph after each launch.
    std::function<void(uint64_t graph)> launch_observer = nullptr;
    /// Operations of layers are repeated from these records, and the sum of losses is 0. REQUIRES: tensors
    /// have no data; all microbatches are alike; the records outlive the executor.
    WorkRecords* records = nullptr;
};

class Executor {
  public:
    /// REQUIRES: model and mesh outlive the executor; `program` is the program of this rank.
    Executor(ParallelModel& model, comm::Mesh& mesh, const Program& program, const ExecutorOptions& options);

    /// COLLECTIVE: runs one step's forward and backward over the microbatches, or its forward alone.
    /// REQUIRES: reset_gradients() was called, unless the program is forward only. The parameters get the
    /// gradients of loss_weight * (the sum of all counted tokens' losses), summed over the ranks. `update` is
    /// the number of updates before this step; it selects the random bits of gradients in bf16. Returns the
    /// sum of losses (unweighted, fp64) on a rank with the head, else 0.
    at::Tensor run(std::span<const model::Batch> microbatches, double loss_weight, int64_t update);

    /// After run() has thrown: the operation that failed; null if no operation was running.
    const UnitOp* failed_op() const { return current_op_ ? &*current_op_ : nullptr; }

  private:
    at::Tensor run_ops(const ProgramPart& part, std::span<const model::Batch> microbatches,
                       const at::Tensor& loss_weight);
    at::Tensor run_graph(const ProgramPart& part, std::span<const model::Batch> microbatches,
                         const at::Tensor& loss_weight);

    /// A message from another stage, on its way to this rank.
    struct Incoming {
        at::Tensor x;  // [rows, dim]: an activation or a gradient
        comm::Pending pending;
    };

    void run_op(const UnitOp& op);
    void run_layer_op(const UnitOp& op, Stage& stage, Slot& slot);
    void forward_loss(const UnitOp& op, Stage& stage, Slot& slot);
    void send(comm::Communicator& group, at::Tensor& x, int to_stage);
    void receive(const UnitOp& op, comm::Communicator& group, int from_stage);
    void take(const UnitOp& op, comm::Communicator& group, at::Tensor& x);
    Stage& stage_of(const UnitOp& op);
    ShardedSet& set_of(const UnitOp& op);
    Slot& slot_of(const UnitOp& op);

    ParallelModel& model_;
    comm::Communicator& world_;
    comm::Communicator &activations_, &gradients_;  // of the pipeline; one group where that is enough
    int tensor_degree_;
    std::vector<ProgramPart> parts_;
    model::RecomputeMode recompute_;
    bool forward_only_;
    std::optional<UnitOp> current_op_;
    ExecutorOptions options_;
    bool has_run_ = false;
    std::vector<std::unique_ptr<RecordedRun>> recorded_;  // by ProgramPart::recording
    std::optional<RepeatedOps> repeated_;
    std::vector<Slot> slots_;
    std::map<std::pair<bool, int>, comm::Pending> sending_;  // by being in gradients_, and by receiving rank
    std::map<std::tuple<comm::Communicator*, int, int>, Incoming> incoming_;  // by group, stage, microbatch

    // State of the part that runs now.
    std::span<const model::Batch> microbatches_;
    at::Tensor loss_weight_;  // scalar in the accumulation type of the compute type
    at::Tensor loss_sum_;
};

}  // namespace argosy::parallel
