// One training step: forward and backward over the microbatches, sums over the mesh, clipping, update.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mesh/mesh.h"
#include "model/batch.h"
#include "optim/adamw.h"
#include "optim/loss_scale.h"
#include "parallel/executor.h"
#include "parallel/parallel_model.h"

namespace argosy::train {

/// The microbatches of one step on this rank, and what they count for.
struct StepBatch {
    std::vector<model::Batch> microbatches = {};
    int64_t counted_tokens = 0;      // of this rank: tokens with a target
    int64_t job_counted_tokens = 0;  // of all data-parallel ranks together
    int64_t first_position = 0;      // of the job's samples in the run, as data::Loader counts
};

/// Beyond these the update is left out. Whatever they are, loss and norm must be finite.
struct UpdateLimits {
    double loss = std::numeric_limits<double>::infinity();
    double grad_norm = std::numeric_limits<double>::infinity();
};

struct StepResult {
    double loss = 0;       // mean over the job's counted tokens
    double grad_norm = 0;  // of the whole gradient, before clipping
    bool skipped = false;  // loss or norm beyond the limits: weights and moments are as before
    /// Of each of model::unit_names, where StepOptions asks for them; before clipping too.
    std::vector<std::pair<std::string, double>> unit_grad_norms = {};
    std::optional<double> loss_scale = {};  // that the step ran with
    bool lowered_loss_scale = false;        // skipped only because gradients overflowed under that scale
    bool finite() const { return std::isfinite(loss) && std::isfinite(grad_norm); }
};

struct StepOptions {
    double max_norm = 1;  // infinite: no clipping
    bool decay_all_parameters = false;
    bool unit_grad_norms = false;
    optim::AdamWOptions adamw = {};
    std::optional<optim::LossScaleOptions> loss_scale = {};  // none: nothing is scaled
};

class Step {
  public:
    /// REQUIRES: model and mesh outlive it.
    Step(parallel::ParallelModel& model, mesh::Mesh& mesh, parallel::Executor executor,
         const StepOptions& options);

    /// COLLECTIVE over the world: gradients of the mean loss, times the loss scale, are on the parameters,
    /// summed over the mesh. Waits for them; before that `meanwhile` is called, if there is one, when a GPU
    /// has got all that it is to do. Returns [loss, squared norm], fp64 in the processor's memory, and on
    /// request the squared norms by unit after them, all without the scale, the same on all ranks.
    at::Tensor forward_backward(const StepBatch& batch, const std::function<void()>& meanwhile = nullptr);

    /// COLLECTIVE over the world: updates the weights with the clipped gradients, unless the loss or the norm
    /// is not finite or beyond the limits, which must be the same on all ranks.
    StepResult update(const at::Tensor& totals, double lr, const UpdateLimits& limits = {});

    optim::AdamW& optimizer() { return optimizer_; }
    const parallel::Executor& executor() const { return executor_; }
    optim::LossScale* loss_scale() { return loss_scale_ ? &*loss_scale_ : nullptr; }

  private:
    double scale() const { return loss_scale_ ? loss_scale_->value() : 1; }
    double gradient_factor(double norm) const;
    void adjust_loss_scale(StepResult& result);

    parallel::ParallelModel& model_;
    mesh::Mesh& mesh_;
    parallel::Executor executor_;
    StepOptions options_;
    optim::AdamW optimizer_;
    std::optional<optim::LossScale> loss_scale_;
};

}  // namespace argosy::train
