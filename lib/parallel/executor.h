// Runs a rank's program: the one executor for every schedule, layout and recompute policy.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "mesh/mesh.h"
#include "model/batch.h"
#include "parallel/lowering.h"
#include "parallel/parallel_model.h"

namespace argosy::parallel {

class Executor {
  public:
    /// REQUIRES: model outlives it; `program` is this rank's.
    Executor(ParallelModel& model, mesh::Mesh& mesh, Program program, const LoweringOptions& options);

    /// COLLECTIVE: one step's forward and backward over the microbatches. Gradients of loss_scale * the sum
    /// of all counted tokens' losses are added to the parameters. Returns that sum (unscaled, fp64) where
    /// this rank has the head, else 0.
    at::Tensor run(std::span<const model::Batch> microbatches, double loss_scale);

  private:
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
    comm::Communicator& pipeline_;
    int64_t tensor_degree_;
    Program program_;
    model::Keep keep_;
    std::vector<Slot> slots_;
    std::map<int, comm::Pending> sending_;  // by receiving rank: the message that its channel holds

    // Of the step under way.
    std::span<const model::Batch> microbatches_;
    double loss_scale_ = 1;
    at::Tensor loss_sum_;
};

}  // namespace argosy::parallel
