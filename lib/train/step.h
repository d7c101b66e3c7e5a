// One training step: forward and backward over the microbatches, sums over the mesh, clipping, update.
#pragma once

#include <cstdint>
#include <span>

#include "mesh/mesh.h"
#include "model/batch.h"
#include "optim/adamw.h"
#include "parallel/executor.h"
#include "parallel/parallel_model.h"

namespace argosy::train {

/// The microbatches of one step on this rank, and what they count for.
struct StepBatch {
    std::vector<model::Batch> microbatches;
    int64_t counted_tokens = 0;      // of this rank: tokens with a target
    int64_t job_counted_tokens = 0;  // of all data-parallel ranks together
};

struct StepResult {
    double loss = 0;       // mean over the job's counted tokens
    double grad_norm = 0;  // of the whole gradient, before clipping
    bool skipped = false;  // loss or norm not finite: weights and moments are as before
};

struct StepOptions {
    double max_norm = 1;  // infinite: no clipping
    bool decay_all_parameters = false;
    optim::AdamWOptions adamw = {};
};

class Step {
  public:
    /// REQUIRES: model and mesh outlive it.
    Step(parallel::ParallelModel& model, mesh::Mesh& mesh, parallel::Executor executor,
         const StepOptions& options);

    /// COLLECTIVE over the world: gradients of the mean loss are on the parameters, summed over the mesh.
    /// Returns [loss, squared norm], fp64, the same on all ranks.
    at::Tensor forward_backward(const StepBatch& batch);

    /// COLLECTIVE over the world: clips the gradients and updates the weights, unless the loss or the norm is
    /// not finite.
    StepResult update(const at::Tensor& loss_and_squared_norm, double lr);

  private:
    void clip(const at::Tensor& norm);

    parallel::ParallelModel& model_;
    mesh::Mesh& mesh_;
    parallel::Executor executor_;
    StepOptions options_;
    optim::AdamW optimizer_;
};

}  // namespace argosy::train
