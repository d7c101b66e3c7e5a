// Skips updates whose loss or gradient norm is not finite or, on request, far above that of earlier updates
// (a spike), and ends the run after too many skipped updates in a row. The Step compares the job's totals
// with limits that are known before the step (step.h), so all ranks decide alike without further
// communication. The UpdateGuard gives the limits, counts the skipped updates, and explains why an update was
// skipped.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "train/step.h"

namespace argosy::train {

/// The newest values of a series. They give the z-score of another value: by how many standard deviations
/// that value is above their mean.
class TrailingWindow {
  public:
    /// Keeps the newest `size` values. There are no z-scores before the window has `min_values` values.
    /// REQUIRES: 2 <= min_values <= size.
    TrailingWindow(int size, int min_values) : size_(size), min_values_(min_values) {}

    void add(double value);
    std::vector<double> values() const { return {values_.begin(), values_.end()}; }  // oldest first

    /// The value that has this z-score; infinite while the window has fewer than `min_values` values.
    double value_at(double zscore) const;
    /// The inverse of value_at(); NaN while the window has fewer than `min_values` values.
    double zscore_of(double value) const;
    double mean() const;

  private:
    bool has_enough() const { return static_cast<int>(values_.size()) >= min_values_; }
    double deviation() const;

    int size_, min_values_;
    std::deque<double> values_;
};

/// Without z-scores only updates that are not finite are skipped.
struct UpdateGuardOptions {
    int max_nonfinite_steps = 5;  // in a row; the run ends at the last one
    std::optional<double> loss_zscore = {};
    std::optional<double> grad_norm_zscore = {};
    int window = 128, warmup_steps = 64;  // `size` and `min_values` of the TrailingWindows
    int max_skipped_steps = 5;            // spikes in a row; the run ends at the last one
    bool skips_spikes() const { return loss_zscore || grad_norm_zscore; }
};

class UpdateGuard {
  public:
    /// Everything that changes from step to step. A resumed run needs it.
    struct State {
        std::vector<double> losses, grad_norms;  // of the newest updates that were made
        int64_t nonfinite_in_a_row = 0, spikes_in_a_row = 0;
        int64_t num_skipped = 0;
        bool operator==(const State&) const = default;
    };

    explicit UpdateGuard(const UpdateGuardOptions& options);

    /// The limits for the next step. They follow from the updates made so far.
    UpdateLimits limits() const;

    /// Call after each step. A skipped step does not change the limits.
    void count(const StepResult& result);

    /// Whether check() throws.
    bool gives_up() const;

    /// Throws JobError if too many updates in a row were skipped. Call this after the step's metrics are
    /// written, so that they include the step that ends the run.
    void check(int64_t step, const StepResult& result) const;

    int64_t num_skipped() const { return num_skipped_; }

    State state() const;
    /// Restores a saved state. If the windows are shorter now, they keep the newest values.
    void restore(const State& state);

    /// Text that says why a step was skipped. Call after count().
    std::string reason(const StepResult& result) const;
    /// NaN while there are too few values.
    double loss_zscore(const StepResult& result) const { return losses_.zscore_of(result.loss); }
    double grad_norm_zscore(const StepResult& result) const { return norms_.zscore_of(result.grad_norm); }

  private:
    UpdateGuardOptions options_;
    TrailingWindow losses_, norms_;   // of updates that were made; empty if the check for spikes is off
    int64_t nonfinite_in_a_row_ = 0;  // since the last update that was made; spikes_in_a_row_, too
    int64_t spikes_in_a_row_ = 0;
    int64_t num_skipped_ = 0;
};

}  // namespace argosy::train
