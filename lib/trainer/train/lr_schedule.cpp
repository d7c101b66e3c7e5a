#include "train/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace argosy::train {
namespace {

int64_t steps_after_warmup(const LrScheduleOptions& options) {
    return std::max<int64_t>(0, options.total_steps - options.warmup_steps);
}

/// The decay factor: 1 at progress 0, 0 at progress 1.
double decay_factor(DecayShape shape, double progress) {
    switch (shape) {
        case DecayShape::Linear:
            return 1 - progress;
        case DecayShape::Cosine:
            return 0.5 * (1 + std::cos(std::numbers::pi * progress));
        case DecayShape::Sqrt:
            return 1 - std::sqrt(progress);
    }
    return 1;
}

}  // namespace

int64_t requested_decay_steps(const LrScheduleOptions& options) {
    if (!options.decay_ratio) return steps_after_warmup(options);
    // Rounds halves to even like Python's round(), so that a TorchTitan configuration gives the same steps.
    return static_cast<int64_t>(
        std::nearbyint(static_cast<double>(options.total_steps) * *options.decay_ratio));
}

LrSchedule::LrSchedule(const LrScheduleOptions& options)
    : options_(options),
      decay_steps_(std::min(steps_after_warmup(options), requested_decay_steps(options))) {}

double LrSchedule::at_step(int64_t step) const {
    if (step <= options_.warmup_steps) {
        return options_.peak * static_cast<double>(step) / static_cast<double>(options_.warmup_steps);
    }
    const int64_t first_decay_step = options_.total_steps - decay_steps_ + 1;
    if (decay_steps_ == 0 || step <= first_decay_step) return options_.peak;
    const double progress =
        std::min(1.0, static_cast<double>(step - first_decay_step) / static_cast<double>(decay_steps_));
    const double factor = decay_factor(options_.shape, progress);
    return options_.peak * (options_.min_factor + (1 - options_.min_factor) * factor);
}

}  // namespace argosy::train
