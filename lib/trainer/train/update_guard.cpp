#include "train/update_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace argosy::train {
namespace {

std::string above_the_mean(const char* what, double value, const TrailingWindow& window) {
    return fmt::format(
        "the {} {:.4g} is {:.1f} standard deviations above {:.4g}, the mean of the updates before", what,
        value, window.zscore_of(value), window.mean());
}

// Minimum deviation as a fraction of the mean. The minimum keeps rounding errors of constant values from
// counting as spikes.
constexpr double kMinDeviation = 1e-4;

}  // namespace

UpdateGuard::UpdateGuard(const UpdateGuardOptions& options)
    : options_(options),
      losses_(options.window, options.warmup_steps),
      norms_(options.window, options.warmup_steps) {}

UpdateLimits UpdateGuard::limits() const {
    UpdateLimits limits;
    if (options_.loss_zscore) limits.loss = losses_.value_at(*options_.loss_zscore);
    if (options_.grad_norm_zscore) limits.grad_norm = norms_.value_at(*options_.grad_norm_zscore);
    return limits;
}

void UpdateGuard::count(const StepResult& result) {
    if (result.skipped) {
        ++num_skipped_;
        ++(result.finite() ? spikes_in_a_row_ : nonfinite_in_a_row_);
        return;
    }
    nonfinite_in_a_row_ = spikes_in_a_row_ = 0;
    if (!options_.skips_spikes()) return;
    losses_.add(result.loss);
    norms_.add(result.grad_norm);
}

UpdateGuard::State UpdateGuard::state() const {
    return {losses_.values(), norms_.values(), nonfinite_in_a_row_, spikes_in_a_row_, num_skipped_};
}

void UpdateGuard::restore(const State& state) {
    for (const double loss : state.losses) losses_.add(loss);
    for (const double norm : state.grad_norms) norms_.add(norm);
    nonfinite_in_a_row_ = state.nonfinite_in_a_row;
    spikes_in_a_row_ = state.spikes_in_a_row;
    num_skipped_ = state.num_skipped;
}

std::string UpdateGuard::reason(const StepResult& result) const {
    if (!result.finite()) {
        return fmt::format("the loss is {} and the gradient norm {}", result.loss, result.grad_norm);
    }
    const UpdateLimits limits = this->limits();
    return result.loss > limits.loss ? above_the_mean("loss", result.loss, losses_)
                                     : above_the_mean("gradient norm", result.grad_norm, norms_);
}

bool UpdateGuard::gives_up() const {
    return nonfinite_in_a_row_ >= options_.max_nonfinite_steps ||
           spikes_in_a_row_ >= options_.max_skipped_steps;
}

void UpdateGuard::check(int64_t step, const StepResult& result) const {
    if (nonfinite_in_a_row_ >= options_.max_nonfinite_steps) {
        throw JobError(
            "step {}: {}; this is skipped update {} in a row, which reaches training.max_nonfinite_steps. "
            "The weights are those from before the first of them. Lower optimizer.lr, or look at the data of "
            "these steps",
            step, reason(result), nonfinite_in_a_row_);
    }
    if (spikes_in_a_row_ >= options_.max_skipped_steps) {
        throw JobError(
            "step {}: {}; this is skipped update {} in a row, which reaches loss_spike.max_skipped_steps. "
            "The weights are those from before the first of them. Look at the samples that "
            "skipped_updates.jsonl names, lower optimizer.lr, or raise the z-score if this is no spike",
            step, reason(result), spikes_in_a_row_);
    }
}

void TrailingWindow::add(double value) {
    values_.push_back(value);
    if (static_cast<int>(values_.size()) > size_) values_.pop_front();
}

double TrailingWindow::mean() const {
    return std::accumulate(values_.begin(), values_.end(), 0.0) / static_cast<double>(values_.size());
}

double TrailingWindow::deviation() const {
    const double middle = mean();
    double squares = 0;
    for (const double value : values_) squares += (value - middle) * (value - middle);
    const double deviation = std::sqrt(squares / static_cast<double>(values_.size() - 1));
    return std::max(deviation, kMinDeviation * std::abs(middle));
}

double TrailingWindow::value_at(double zscore) const {
    if (!has_enough()) return std::numeric_limits<double>::infinity();
    return mean() + zscore * deviation();
}

double TrailingWindow::zscore_of(double value) const {
    if (!has_enough()) return std::numeric_limits<double>::quiet_NaN();
    return (value - mean()) / deviation();
}

}  // namespace argosy::train
