// Decides when a run ends: at training.steps, max_tokens or max_time, whichever comes first, or on a signal.
// The step that reaches training.steps or max_tokens is known beforehand (final_step). After each step, each
// rank checks the time and whether it has received a signal, and the ranks agree whether to stop
// (StopAgreement).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "comm/communicator.h"

namespace argosy::train {

/// How far a run has come, in steps, samples and tokens.
struct Position {
    int64_t step = 0;     // the last step done; steps are numbered from 1
    int64_t samples = 0;  // position of the next sample in the run (data::Loader)
    int64_t tokens = 0;   // trained on so far, all ranks together
    bool operator==(const Position&) const = default;
    Position& operator+=(const Position& more) {
        return *this = {step + more.step, samples + more.samples, tokens + more.tokens};
    }
};

/// Whether a rank asks to stop, and why. OutOfTime: max_time by the rank's clock. Signal: base/program.h;
/// Slurm sends signals before a time limit or a preemption, and they reach the ranks at different moments.
/// The ranks take the maximum, so a later value takes precedence.
enum class StopReason : int64_t { None, OutOfTime, Signal };

/// COLLECTIVE: makes a group of all ranks for agreement between steps. The group carries no training data.
std::unique_ptr<comm::Communicator> control_group(const comm::Communicator& world);

class StopAgreement {
  public:
    /// REQUIRES: main began with catch_stop_requests(), and `control` outlives this object.
    explicit StopAgreement(comm::Communicator& control) : control_(control) {}

    /// COLLECTIVE. Call before the first step and after each step. Returns the maximum of `own` over all
    /// ranks, where `own` counts as Signal on a rank that has received a signal.
    StopReason agreed(StopReason own = StopReason::None);

    /// COLLECTIVE: the two halves of agreed(), for ranks that compute meanwhile. begin() returns at once;
    /// finish() waits for the other ranks' begin(), and not for their GPUs.
    void begin(StopReason own = StopReason::None);
    StopReason finish();

  private:
    comm::Communicator& control_;
    at::Tensor reason_;  // of all ranks, once exchange_ is done
    comm::Pending exchange_;
};

struct RunLimitsOptions {
    int64_t steps = 0;
    std::optional<int64_t> max_tokens = {};  // unset: no limit
    int64_t tokens_per_step = 1;
    struct MaxTime {
        double seconds;
        std::string text;  // for messages: "1m40s"
    };
    std::optional<MaxTime> max_time = {};  // unset: no limit
};

/// The last step of a run that is at `position`: the first step that reaches max_tokens, or options.steps if
/// that is less. The result may be less than position.step.
int64_t final_step(const RunLimitsOptions& options, const Position& position);

class RunLimits {
  public:
    /// `started` is the time in seconds, by `clock`, at which this process began. max_time counts from then.
    RunLimits(const RunLimitsOptions& options, double started, const Position& position = {},
              std::function<double()> clock = seconds_now);

    /// The number of the run's last step.
    int64_t final_step() const { return final_step_; }

    /// Call at the start and at the end of each step. finish_step() returns OutOfTime if a step that takes as
    /// long as the slowest of the newest steps would not end within max_time. Therefore max_time never stops
    /// a process before its first step.
    void start_step();
    StopReason finish_step();

    /// Seconds until max_time; infinite if max_time is not set.
    double seconds_left() const;

    /// The text for the log that says which limit ended the run.
    std::string ending(const Position& position) const;

    /// Logs why the run ends at `position`, and returns the exit code. If a signal ended the run before its
    /// last step, returns Requeue, or throws JobError if the run does not save. `start` is the position at
    /// which this process began; `saved` says whether the run saves.
    ExitCode end(StopReason reason, const Position& position, const Position& start, bool saved) const;

  private:
    RunLimitsOptions options_;
    int64_t final_step_;
    double started_;
    std::function<double()> clock_;
    double step_started_ = 0;
    std::deque<double> newest_seconds_;  // durations of the newest steps
};

}  // namespace argosy::train
