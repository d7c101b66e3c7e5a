// Waiting for an answer, look by look, for every backend that runs on CPUs.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "base/clock.h"

namespace argosy {

/// Counts the time that this process has looked for an answer: between two looks it may have stood still
/// itself, stopped by a signal or suspended by Slurm with all its peers; such a gap says nothing about them
/// and counts little.
class Patience {
  public:
    explicit Patience(double limit_seconds) : limit_seconds_(limit_seconds) {}

    /// Counts one look, and lets no time pass; false when patience is at an end.
    bool lasts() {
        const double now = seconds_now();
        waited_seconds_ += std::min(now - last_look_, kMostSecondsBetweenLooks);
        last_look_ = now;
        return waited_seconds_ <= limit_seconds_;
    }

    double waited_seconds() const { return waited_seconds_; }

    /// Lets a moment pass between two looks; false when patience is at an end.
    ///
    /// A rank that waits yields at first, since an answer that is due costs least that way. When it stays
    /// away, the rank sleeps, and leaves its core to ranks that may be at work on the answer: with more ranks
    /// than cores a step takes up to a third less, with a core for each the same.
    bool pause() {
        if (!lasts()) return false;
        if (waited_seconds_ < kYieldingSeconds) {
            sched_yield();
        } else {
            std::this_thread::sleep_for(kSleep);
        }
        return true;
    }

  private:
    static constexpr double kMostSecondsBetweenLooks = 1;  // on a machine with far more ranks than cores
    static constexpr double kYieldingSeconds = 1e-3;
    static constexpr std::chrono::microseconds kSleep{100};
    double limit_seconds_;
    double waited_seconds_ = 0;
    double last_look_ = seconds_now();
};

/// Looks at `done` without a pause, since a pause would be part of what is measured; false when it takes
/// longer than that. The clock is looked at now and then, which most waits do not live to see.
template <class Done>
bool done_within(double seconds, Done done) {
    constexpr int kLooksBeforeTheClock = 256;
    std::optional<Patience> patience;
    for (int looks = 1; !done(); ++looks) {
        if (looks % kLooksBeforeTheClock != 0) continue;
        if (!patience) patience.emplace(seconds);
        if (!patience->lasts()) return false;
    }
    return true;
}

}  // namespace argosy
