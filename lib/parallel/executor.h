// Runs a rank's program: the one executor for every schedule, layout and recompute policy.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "mesh/mesh.h"
#include "model/batch.h"
#include "parallel/lowering.h"
#include "parallel/parallel_model.h"
#include "parallel/program_parts.h"
#include "parallel/recorded_run.h"

namespace argosy::parallel {

struct ExecutorOptions {
    model::Keep keep = model::Keep::Everything;  // as the program was lowered for
    /// On a GPU: the second run is recorded, in as few graphs as its parts allow, and launched from then on.
    bool graphs = false;
};

class Executor {
  public:
    /// REQUIRES: model outlives it; `program` is this rank's.
    Executor(ParallelModel& model, mesh::Mesh& mesh, const Program& program, const ExecutorOptions& options);

    /// COLLECTIVE: one step's forward and backward over the microbatches, after start_gradients(). The
    /// parameters get the gradients of loss_scale * the sum of all counted tokens' losses, summed over ranks
    /// as far as the program does that; sum_remaining() does the rest. Returns that sum of losses (unscaled,
    /// fp64) where this rank has the head, else 0.
    at::Tensor run(std::span<const model::Batch> microbatches, double loss_scale);

    /// After run() has thrown: which operation did. Null: none of them.
    const UnitOp* under_way() const { return under_way_ ? &*under_way_ : nullptr; }

  private:
    at::Tensor compute(const ProgramPart& part, std::span<const model::Batch> microbatches,
                       const at::Tensor& loss_scale);
    at::Tensor launch(const ProgramPart& part, std::span<const model::Batch> microbatches,
                      const at::Tensor& loss_scale);

    /// The activations of one microbatch on one stage.
    struct Slot {
        at::Tensor stream;    // the residual stream, after the last layer that ran
        at::Tensor gradient;  // with respect to it, on the way back
        comm::Pending incoming;
        std::vector<model::Tape> tapes;        // by layer
        std::vector<model::WeightWork> works;  // by layer
    };

    void run(const UnitOp& op);
    void forward(const UnitOp& op, Stage& stage, Slot& slot);
    void loss(const UnitOp& op, Stage& stage, Slot& slot);
    void backward_input(const UnitOp& op, Stage& stage, Slot& slot);
    void send(at::Tensor& what, int to_stage);
    void receive(const UnitOp& op, at::Tensor& into, int from_stage);
    Stage& stage_of(const UnitOp& op);
    Slot& slot_of(const UnitOp& op);

    ParallelModel& model_;
    comm::Communicator &world_, &pipeline_;
    int64_t tensor_degree_;
    std::vector<ProgramPart> parts_;
    std::optional<UnitOp> under_way_;
    ExecutorOptions options_;
    bool has_run_ = false;
    std::vector<std::unique_ptr<RecordedRun>> recorded_;  // by ProgramPart::recording
    std::vector<Slot> slots_;
    std::map<int, comm::Pending> sending_;  // by receiving rank: the message that its channel holds

    // Of the part under way.
    std::span<const model::Batch> microbatches_;
    at::Tensor loss_scale_;  // of the type that losses are added up in
    at::Tensor loss_sum_;
};

}  // namespace argosy::parallel
