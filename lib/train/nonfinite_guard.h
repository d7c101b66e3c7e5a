// What to do when a loss or a gradient norm is not finite: the step leaves the update out by itself (step.h);
// this counts, and ends the run when it happens too often in a row.
#pragma once

#include <cstdint>

#include "train/step.h"

namespace argosy::train {

class NonfiniteGuard {
  public:
    explicit NonfiniteGuard(int most_in_a_row) : most_in_a_row_(most_in_a_row) {}

    /// After each step.
    void count(const StepResult& result);

    /// Once the step's metrics are out, so that they end with the step that ended the run. Throws JobError
    /// when `most_in_a_row` updates in a row were skipped, of which `result` was the last.
    void check(int64_t step, const StepResult& result) const;

    int64_t num_skipped() const { return num_skipped_; }

  private:
    int most_in_a_row_;
    int in_a_row_ = 0;
    int64_t num_skipped_ = 0;
};

}  // namespace argosy::train
