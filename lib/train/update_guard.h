// Which updates are left out, and when that ends the run: those whose loss or gradient norm is not finite,
// and on request those that stand out from the updates before (a loss spike). The step decides by itself,
// from the job's totals and from limits that are known before it (step.h), so that all ranks decide alike
// without asking each other and without waiting for the device; this gives the limits, counts, and explains.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/job_config.h"
#include "train/step.h"
#include "train/trailing_window.h"

namespace argosy::train {

class UpdateGuard {
  public:
    /// All that changes over the steps: what a resumed run needs.
    struct State {
        std::vector<double> losses, grad_norms;  // of the newest updates made, for what stands out
        int64_t nonfinite_in_a_row = 0, spikes_in_a_row = 0;
        int64_t num_skipped = 0;
        bool operator==(const State&) const = default;
    };

    UpdateGuard(int max_nonfinite_steps, const config::LossSpike& spike);

    /// For the next step, from the updates made so far.
    UpdateLimits limits() const;

    /// After each step. What was skipped does not change the limits; and a step that only found its loss
    /// scale too large is no sign of anything.
    void count(const StepResult& result);

    /// Whether check() throws.
    bool gives_up() const;

    /// Once the step's metrics are out, so that they end with the step that ended the run. Throws JobError
    /// when this update was the last of too many that were skipped without one made in between.
    void check(int64_t step, const StepResult& result) const;

    int64_t num_skipped() const { return num_skipped_; }

    State state() const;
    /// Windows may have another length by now: the newest values count.
    void restore(const State& state);

    /// Of a skipped step, after count(): why, for people. The z-scores are NaN while they are not judged.
    std::string reason(const StepResult& result) const;
    double loss_zscore(const StepResult& result) const { return losses_.zscore_of(result.loss); }
    double grad_norm_zscore(const StepResult& result) const { return norms_.zscore_of(result.grad_norm); }

  private:
    int max_nonfinite_steps_;
    config::LossSpike spike_;
    TrailingWindow losses_, norms_;   // of updates made; empty where spikes are not looked for
    int64_t nonfinite_in_a_row_ = 0;  // since the last update made, as is spikes_in_a_row_
    int64_t spikes_in_a_row_ = 0;
    int64_t num_skipped_ = 0;
};

}  // namespace argosy::train
