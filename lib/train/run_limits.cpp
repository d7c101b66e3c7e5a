#include "train/run_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace argosy::train {
namespace {

// Enough that one slow step now and then (a checkpoint, a slow file system) is among them.
constexpr size_t kNumNewestSteps = 16;

int64_t fewest_steps(const config::Training& training, int64_t tokens_per_step) {
    if (!training.max_tokens) return training.steps;
    const int64_t steps = (*training.max_tokens - 1) / tokens_per_step + 1;
    return std::min(training.steps, steps);
}

}  // namespace

RunLimits::RunLimits(const config::Training& training, int64_t tokens_per_step, double started,
                     std::function<double()> clock)
    : training_(training),
      tokens_per_step_(tokens_per_step),
      num_steps_(fewest_steps(training, tokens_per_step)),
      started_(started),
      clock_(std::move(clock)) {}

void RunLimits::start_step() { step_started_ = clock_(); }

StopWish RunLimits::finish_step() {
    newest_seconds_.push_back(clock_() - step_started_);
    if (newest_seconds_.size() > kNumNewestSteps) newest_seconds_.pop_front();
    return std::ranges::max(newest_seconds_) <= seconds_left() ? StopWish::None : StopWish::OutOfTime;
}

double RunLimits::seconds_left() const {
    if (!training_.max_time) return std::numeric_limits<double>::infinity();
    return started_ + static_cast<double>(training_.max_time->seconds) - clock_();
}

std::string RunLimits::ending(int64_t last_step) const {
    const std::string done = fmt::format("done after step {}: ", last_step);
    if (last_step < num_steps_) {
        return done +
               fmt::format("of training.max_time = {} remain {:.1f} s, and the next step may take {:.1f} s",
                           config::duration_text(*training_.max_time), std::max(seconds_left(), 0.0),
                           std::ranges::max(newest_seconds_));
    }
    if (last_step == training_.steps) return done + fmt::format("training.steps = {}", training_.steps);
    return done + fmt::format("training.max_tokens = {} is reached with {} tokens", *training_.max_tokens,
                              last_step * tokens_per_step_);
}

}  // namespace argosy::train
