// Decides when a run ends: at training.steps, max_tokens or max_time, whichever comes first. Steps and tokens
// are known beforehand. Each rank checks the time after each step, and the ranks agree through StopAgreement.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "comm/communicator.h"
#include "config/job_config.h"
#include "train/data_feed.h"

namespace argosy::train {

// At the end of each step all ranks agree whether to stop: because of a signal (base/program.h), which
// Slurm sends before a time limit or a preemption and which reaches ranks at different moments, or because of
// a rank's clock (run_limits.h).

/// Whether a rank asks to stop, and why. The ranks take the maximum, so a later value takes precedence.
enum class StopReason : int64_t { None, OutOfTime, Signal };

/// COLLECTIVE: a group of all ranks for agreement between steps, separate from the groups that carry training
/// data.
std::unique_ptr<comm::Communicator> control_group(const comm::Communicator& world);

class StopAgreement {
  public:
    /// REQUIRES: main began with catch_stop_requests(), and `control` outlives it.
    explicit StopAgreement(comm::Communicator& control) : control_(control) {}

    /// COLLECTIVE, at the end of each step: the maximum over all ranks of `own` and of Signal where a rank
    /// has received a signal; the same answer on all ranks.
    StopReason agreed(StopReason own = StopReason::None);

  private:
    comm::Communicator& control_;
};

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

    /// Logs why the run ends at `position`. Returns Requeue if a signal ended it before its last step and it
    /// is `saved`; throws JobError if it never saves. `start`: position at which this process began.
    ExitCode end(StopReason reason, const Position& position, const Position& start, bool saved) const;

  private:
    config::Training training_;
    int64_t num_steps_;
    double started_;
    std::function<double()> clock_;
    double step_started_ = 0;
    std::deque<double> newest_seconds_;  // durations of the newest steps
};

}  // namespace argosy::train
