// Time on this machine: for measuring, and for polling until an answer comes or a time limit passes.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

namespace argosy {

/// Seconds of a monotonic clock. Only differences mean something.
inline double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Counts the time that this process has polled for an answer. Between two polls the process itself may have
/// stood still (stopped by a signal, or suspended by Slurm together with its peers). A gap of this kind
/// says nothing about the peers, so each gap counts for at most kMaxSecondsBetweenLooks.
class PollTimer {
  public:
    explicit PollTimer(double limit_seconds) : limit_seconds_(limit_seconds) {}

    /// Counts one poll and returns at once; false once the time limit has passed.
    bool has_time_left() {
        const double now = seconds_now();
        waited_seconds_ += std::min(now - last_look_, kMaxSecondsBetweenLooks);
        last_look_ = now;
        return waited_seconds_ <= limit_seconds_;
    }

    double waited_seconds() const { return waited_seconds_; }

    /// Waits shortly between two polls; false once the time limit has passed.
    ///
    /// A waiting rank first yields, the cheapest way to wait for an answer that is about to arrive. After
    /// kYieldingSeconds it sleeps and leaves its core to ranks that may be computing the answer: with more
    /// ranks than cores a step takes up to a third less time, with a core for each rank the same.
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
    static constexpr double kMaxSecondsBetweenLooks = 1;  // long enough for a machine with far more ranks
                                                          // than cores
    static constexpr double kYieldingSeconds = 1e-3;
    static constexpr std::chrono::microseconds kSleep{100};
    double limit_seconds_;
    double waited_seconds_ = 0;
    double last_look_ = seconds_now();
};

/// Polls `done` without a pause, because a pause would be part of the measured time; false when `seconds`
/// have passed first. The clock is read only every 256 polls; most waits end before the first reading.
template <class Done>
bool done_within(double seconds, Done done) {
    constexpr int kLooksBeforeTheClock = 256;
    std::optional<PollTimer> timer;
    for (int looks = 1; !done(); ++looks) {
        if (looks % kLooksBeforeTheClock != 0) continue;
        if (!timer) timer.emplace(seconds);
        if (!timer->has_time_left()) return false;
    }
    return true;
}

}  // namespace argosy
