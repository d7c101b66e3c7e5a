#include "train/run_limits.h"

#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/program.h"

namespace argosy::train {
namespace {

// This is large enough that the newest steps include an occasional slow step (a checkpoint, a slow file
// system).
constexpr size_t kNumNewestSteps = 16;

/// The message depends on whether a step was done since `start`: without one, no new step is saved.
ExitCode stopped_by_signal(const Position& position, const Position& start, int64_t final_step, bool saved) {
    const int64_t step = position.step;
    if (!saved) {
        throw JobError(
            "stopped by a signal after step {} of {}; nothing is saved, because saving needs "
            "checkpoint.enable = true and checkpoint.load_only = false",
            step, final_step);
    }
    const std::string when =
        step == start.step
            ? fmt::format("before step {} of {}, the first of this start; there is nothing new to save",
                          step + 1, final_step)
            : fmt::format("after step {} of {}, which is saved", step, final_step);
    spdlog::info("stopped by a signal {}: exit {}, to be started again", when,
                 static_cast<int>(ExitCode::Requeue));
    return ExitCode::Requeue;
}

}  // namespace

int64_t final_step(const RunLimitsOptions& options, const Position& position) {
    if (!options.max_tokens) return options.steps;
    const int64_t left = *options.max_tokens - position.tokens;
    const int64_t more_steps = left <= 0 ? 0 : (left - 1) / options.tokens_per_step + 1;
    return position.step + std::min(more_steps, options.steps - position.step);
}

RunLimits::RunLimits(const RunLimitsOptions& options, double started, const Position& position,
                     std::function<double()> clock)
    : options_(options),
      final_step_(train::final_step(options, position)),
      started_(started),
      clock_(std::move(clock)) {}

void RunLimits::start_step() { step_started_ = clock_(); }

StopReason RunLimits::finish_step() {
    newest_seconds_.push_back(clock_() - step_started_);
    if (newest_seconds_.size() > kNumNewestSteps) newest_seconds_.pop_front();
    return std::ranges::max(newest_seconds_) <= seconds_left() ? StopReason::None : StopReason::OutOfTime;
}

double RunLimits::seconds_left() const {
    if (!options_.max_time) return std::numeric_limits<double>::infinity();
    return started_ + options_.max_time->seconds - clock_();
}

std::string RunLimits::ending(const Position& position) const {
    const std::string done = fmt::format("done after step {}: ", position.step);
    if (position.step < final_step_) {
        return done +
               fmt::format("{:.1f} s remain of training.max_time = {}, and the next step may take {:.1f} s",
                           std::max(seconds_left(), 0.0), options_.max_time->text,
                           std::ranges::max(newest_seconds_));
    }
    if (position.step >= options_.steps) return done + fmt::format("training.steps = {}", options_.steps);
    return done + fmt::format("training.max_tokens = {} is reached with {} tokens", *options_.max_tokens,
                              position.tokens);
}

ExitCode RunLimits::end(StopReason reason, const Position& position, const Position& start,
                        bool saved) const {
    if (reason == StopReason::Signal && position.step < final_step_) {
        return stopped_by_signal(position, start, final_step_, saved);
    }
    spdlog::info("{}", ending(position));
    return ExitCode::Done;
}

std::unique_ptr<comm::Communicator> control_group(const comm::Communicator& world) {
    std::vector<int> ranks(world.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    return world.subgroup(ranks, "control");
}

StopReason StopAgreement::agreed(StopReason own) {
    begin(own);
    return finish();
}

void StopAgreement::begin(StopReason own) {
    if (stop_requested()) own = StopReason::Signal;
    reason_ = at::full({}, static_cast<int64_t>(own), at::kLong);
    exchange_ = control_.submit(
        {.kind = comm::OpKind::AllReduce, .out = reason_, .in = reason_, .reduction = comm::Reduction::Max});
}

StopReason StopAgreement::finish() {
    exchange_.wait();
    return static_cast<StopReason>(reason_.item<int64_t>());
}

}  // namespace argosy::train
