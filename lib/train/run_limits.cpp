#include "train/run_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace argosy::train {
namespace {

// Large enough that an occasional slow step (a checkpoint, a slow file system) is among the newest steps.
constexpr size_t kNumNewestSteps = 16;

}  // namespace

int64_t final_step(const config::Training& training, int64_t tokens_per_step, const Position& position) {
    if (!training.max_tokens) return training.steps;
    const int64_t left = *training.max_tokens - position.tokens;
    const int64_t more_steps = left <= 0 ? 0 : (left - 1) / tokens_per_step + 1;
    return position.step + std::min(more_steps, training.steps - position.step);
}

RunLimits::RunLimits(const config::Training& training, int64_t tokens_per_step, double started,
                     const Position& position, std::function<double()> clock)
    : training_(training),
      num_steps_(final_step(training, tokens_per_step, position)),
      started_(started),
      clock_(std::move(clock)) {}

void RunLimits::start_step() { step_started_ = clock_(); }

StopReason RunLimits::finish_step() {
    newest_seconds_.push_back(clock_() - step_started_);
    if (newest_seconds_.size() > kNumNewestSteps) newest_seconds_.pop_front();
    return std::ranges::max(newest_seconds_) <= seconds_left() ? StopReason::None : StopReason::OutOfTime;
}

double RunLimits::seconds_left() const {
    if (!training_.max_time) return std::numeric_limits<double>::infinity();
    return started_ + static_cast<double>(training_.max_time->seconds) - clock_();
}

std::string RunLimits::ending(const Position& position) const {
    const std::string done = fmt::format("done after step {}: ", position.step);
    if (position.step < num_steps_) {
        return done +
               fmt::format("of training.max_time = {} remain {:.1f} s, and the next step may take {:.1f} s",
                           config::duration_text(*training_.max_time), std::max(seconds_left(), 0.0),
                           std::ranges::max(newest_seconds_));
    }
    if (position.step >= training_.steps) return done + fmt::format("training.steps = {}", training_.steps);
    return done + fmt::format("training.max_tokens = {} is reached with {} tokens", *training_.max_tokens,
                              position.tokens);
}

}  // namespace argosy::train
