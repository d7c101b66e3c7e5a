// Decides when a run ends: at training.steps, max_tokens or max_time, whichever comes first. Steps and tokens
// are known beforehand. Each rank checks the time after each step, and the ranks agree through StopAgreement.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "base/clock.h"
#include "config/job_config.h"
#include "train/position.h"
#include "train/stop_agreement.h"

namespace argosy::train {

/// The last step of a run that is at `position`: the first step that reaches max_tokens, or training.steps if
/// that is less. The result may be less than position.step.
int64_t final_step(const config::Training& training, int64_t tokens_per_step, const Position& position);

class RunLimits {
  public:
    /// `started`: when this process began, by `clock`, in seconds. max_time counts from the process's start.
    RunLimits(const config::Training& training, int64_t tokens_per_step, double started,
              const Position& position = {}, std::function<double()> clock = seconds_now);

    /// The final step.
    int64_t num_steps() const { return num_steps_; }

    /// Call at the start and at the end of each step. finish_step() returns OutOfTime if a step as long as
    /// the longest of the newest few would not fit into max_time. A process takes at least one step.
    void start_step();
    StopReason finish_step();

    /// Seconds until max_time; infinite if max_time is not set.
    double seconds_left() const;

    /// The text for the log on which limit ended the run.
    std::string ending(const Position& position) const;

  private:
    config::Training training_;
    int64_t num_steps_;
    double started_;
    std::function<double()> clock_;
    double step_started_ = 0;
    std::deque<double> newest_seconds_;  // durations of the newest steps
};

}  // namespace argosy::train
