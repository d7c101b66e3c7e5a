// Where a run ends: training.steps, max_tokens or max_time, whichever comes first. Steps and tokens are known
// beforehand; the time is asked for after each step, and ranks agree on the answer through StopSignal.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "base/clock.h"
#include "config/job_config.h"
#include "train/position.h"
#include "train/stop_signal.h"

namespace argosy::train {

/// The step at which a run ends that is at `position`: the first that reaches max_tokens, or training.steps
/// where that comes sooner. It may lie behind the position.
int64_t final_step(const config::Training& training, int64_t tokens_per_step, const Position& position);

class RunLimits {
  public:
    /// `started`: when this process began, by `clock`, which gives seconds: max_time is a process's.
    RunLimits(const config::Training& training, int64_t tokens_per_step, double started,
              const Position& position = {}, std::function<double()> clock = seconds_now);

    /// The final step.
    int64_t num_steps() const { return num_steps_; }

    /// At a step's begin, and at its end: whether another one, as long as the longest of the newest few,
    /// would still fit into max_time. A process takes one step at least.
    void start_step();
    StopWish finish_step();

    /// Seconds until max_time; infinite where there is none.
    double seconds_left() const;

    /// Which limit ended the run, for people.
    std::string ending(const Position& position) const;

  private:
    config::Training training_;
    int64_t num_steps_;
    double started_;
    std::function<double()> clock_;
    double step_started_ = 0;
    std::deque<double> newest_seconds_;  // of the newest steps
};

}  // namespace argosy::train
