// The clocks of this machine, and polling for an answer until a time limit passes.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

namespace argosy {

/// Seconds of a monotonic clock. Only the difference of two values has a meaning.
inline double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Seconds since the beginning of 1970, by the wall clock, which may jump.
inline double seconds_since_1970() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Counts the time that this process has polled for an answer. Between two polls this process may have been
/// stopped by a signal, or suspended by Slurm together with its peers. This gap says nothing about the peers,
/// so each gap counts as at most kMaxSecondsBetweenPolls.
class PollTimer {
  public:
    explicit PollTimer(double limit_seconds) : limit_seconds_(limit_seconds) {}

    /// Counts one poll and returns at once. Returns false after the time limit.
    bool has_time_left() {
        const double now = seconds_now();
        waited_seconds_ += std::min(now - last_poll_, kMaxSecondsBetweenPolls);
        last_poll_ = now;
        return waited_seconds_ <= limit_seconds_;
    }

    double waited_seconds() const { return waited_seconds_; }

    /// Counts one poll and waits briefly. Returns false, without a wait, after the time limit.
    ///
    /// For kYieldingSeconds the process yields, which costs least if the answer is about to arrive. After
    /// that the process sleeps, so that a rank that computes the answer can use the core. Sleeping shortens a
    /// step by up to a third if there are more ranks than cores, and changes nothing if each rank has a core.
    bool pause() {
        if (!has_time_left()) return false;
        if (waited_seconds_ < kYieldingSeconds) {
            sched_yield();
        } else {
            std::this_thread::sleep_for(kSleep);
        }
        return true;
    }

  private:
    // Large enough for a busy machine: with far more ranks than cores, polls of a rank may be this far apart.
    static constexpr double kMaxSecondsBetweenPolls = 1;
    static constexpr double kYieldingSeconds = 1e-3;
    static constexpr std::chrono::microseconds kSleep{100};
    double limit_seconds_;
    double waited_seconds_ = 0;
    double last_poll_ = seconds_now();
};

/// Polls `done` until it returns true. Returns false after `seconds`. There is no pause between polls,
/// because a pause would be part of the time that a caller measures. The clock is read only every 256 polls;
/// most waits end before the first reading.
template <class Done>
bool done_within(double seconds, Done done) {
    constexpr int kPollsPerReading = 256;
    std::optional<PollTimer> timer;
    for (int polls = 1; !done(); ++polls) {
        if (polls % kPollsPerReading != 0) continue;
        if (!timer) timer.emplace(seconds);
        if (!timer->has_time_left()) return false;
    }
    return true;
}

}  // namespace argosy
