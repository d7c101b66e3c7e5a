// One training step: forward and backward over the microbatches, clipping of the gradients, and the
// optimizers' update. A Step owns the optimizers and the executor.
//
// The executor's program ends with the sums of gradients over ranks. The gradient norm and the update are no
// operations of a program: between them the host reads the loss and the norm, skips the update if gradients
// overflowed or a limit is exceeded, and chooses the factor of the gradients. The norm needs all
// gradients and the loss of all parts, so that nothing is left to run beside it.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/mesh.h"
#include "model/layer.h"
#include "model/units.h"
#include "parallel/executor.h"
#include "parallel/parallel_model.h"
#include "train/adamw.h"
#include "train/expert_balance.h"
#include "train/qk_clip.h"

namespace argosy::train {

/// The microbatches of one step on this rank, and the token counts that weight their losses.
struct StepBatch {
    std::vector<model::Batch> microbatches = {};
    int64_t counted_tokens = 0;      // tokens on this rank that have a target
    int64_t job_counted_tokens = 0;  // sum of counted_tokens over all data-parallel ranks
    int64_t first_position = 0;      // position in the run of the step's first sample (data::Loader)
};

/// Results of forward and backward over the whole job, the same on all ranks.
struct StepTotals {
    double loss = 0;          // mean over the job's counted tokens; 0 if there are none
    double squared_norm = 0;  // of the whole gradient
    /// Squared gradient norm of each of model::unit_names, if StepOptions asks for them.
    std::vector<double> unit_squared_norms = {};
    /// ParallelModel::largest_scores() over all ranks, on the host, if StepOptions clips them.
    at::Tensor largest_scores = {};
    /// ExpertBalance::sums() over all ranks, on the host, of a model with experts.
    at::Tensor expert_sums = {};
    bool finite() const;
};

/// The update is skipped if the loss or the gradient norm exceeds its limit or is not finite.
struct UpdateLimits {
    double loss = std::numeric_limits<double>::infinity();
    double grad_norm = std::numeric_limits<double>::infinity();
};

/// The attention scores of a step, before its update.
struct Scores {
    double largest = 0;         // exact above the threshold, else a bound up to it
    int64_t num_too_large = 0;  // heads with a score above the threshold
};

struct StepResult {
    double loss = 0;       // mean over the job's counted tokens
    double grad_norm = 0;  // of the whole gradient, before clipping
    bool skipped = false;  // loss or norm not finite or above its limit: weights and states are unchanged
    /// Name and gradient norm, before clipping, of each of model::unit_names, if StepOptions asks for them.
    std::vector<std::pair<std::string, double>> unit_grad_norms = {};
    std::optional<Scores> scores = {};                 // if StepOptions clips them
    std::optional<model::ExpertFigures> experts = {};  // of a model with experts
    bool finite() const { return std::isfinite(loss) && std::isfinite(grad_norm); }
};

/// Parameters that differ in how they are updated.
struct ParameterGroup {
    std::string part;  // of their names
    double lr_factor = 1;
    std::optional<double> weight_decay = {};  // none: that of other parameters
};

struct StepOptions {
    double max_norm = 1;        // infinite: no clipping
    double weight_decay = 0.1;  // of all parameters but vectors
    bool decay_all_parameters = false;
    std::vector<ParameterGroup> groups = {};  // the first counts that a parameter's name has a part of
    bool unit_grad_norms = false;
    std::optional<double> qk_clip = {};  // the threshold; none: no QK-clip
    BalanceOptions balance = {};         // of experts
    AdamWOptions adamw = {};
    /// Each parameter goes to the first that takes it, and to AdamW if none does.
    std::vector<OptimizerChoice> optimizers = {};
};

class Step {
  public:
    /// REQUIRES: model and mesh outlive this object.
    Step(parallel::ParallelModel& model, comm::Mesh& mesh, parallel::Executor executor,
         const StepOptions& options);

    /// COLLECTIVE over the world: computes the gradients of the mean loss, summed over the mesh, and leaves
    /// them in the parameters. Calls `meanwhile`, if given, after all GPU work is queued, then waits for that
    /// work. On the device meta, which holds no data, the totals are 0, so that update() runs the optimizer.
    StepTotals forward_backward(const StepBatch& batch, const std::function<void()>& meanwhile = nullptr);

    /// COLLECTIVE over the world: updates the weights with the clipped gradients and waits for the update.
    /// Skips the update as UpdateLimits says. REQUIRES: the same limits on all ranks.
    StepResult update(const StepTotals& totals, double lr, const UpdateLimits& limits = {});

    /// The optimizers' states, by the numbers of ParallelModel::parameters(), and the number of updates done.
    /// Together with the weights they are all that the next update depends on.
    const std::vector<State>& states() const { return states_; }
    /// What the next step depends on, too, if the step loss of experts is on: ExpertBalance::loads().
    at::Tensor expert_loads() const { return balance_ ? balance_->loads() : at::Tensor(); }
    int64_t num_updates() const { return num_updates_; }
    void set_num_updates(int64_t number) { num_updates_ = number; }
    const parallel::Executor& executor() const { return executor_; }

  private:
    double gradient_factor(double norm) const;
    void make_optimizers();

    parallel::ParallelModel& model_;
    comm::Mesh& mesh_;
    parallel::Executor executor_;
    StepOptions options_;
    std::vector<std::unique_ptr<Optimizer>> optimizers_;
    std::optional<QkClip> qk_clip_;
    std::optional<ExpertBalance> balance_;
    std::vector<State> states_;
    int64_t num_updates_ = 0;
};

}  // namespace argosy::train
