#include "train/nonfinite_guard.h"

#include "base/error.h"

namespace argosy::train {

void NonfiniteGuard::count(const StepResult& result) {
    in_a_row_ = result.skipped ? in_a_row_ + 1 : 0;
    num_skipped_ += result.skipped;
}

void NonfiniteGuard::check(int64_t step, const StepResult& result) const {
    if (in_a_row_ < most_in_a_row_) return;
    throw JobError(
        "step {}: the loss is {} and the gradient norm {}; this is update {} in a row that had to be skipped "
        "(training.max_nonfinite_steps). The weights are those from before the first of them. Lower "
        "optimizer.lr, or look at the data of these steps",
        step, result.loss, result.grad_norm, in_a_row_);
}

}  // namespace argosy::train
