// Times iterations with the clock of this process.
#pragma once

#include <vector>

#include "base/clock.h"

namespace argosy::bench {

class HostClock {
  public:
    void start() { ends_ = {seconds_now()}; }
    void end_iteration() { ends_.push_back(seconds_now()); }

    /// For each iteration, the time from the end of the one before it.
    std::vector<double> iteration_seconds() const {
        std::vector<double> seconds;
        for (size_t i = 1; i < ends_.size(); ++i) seconds.push_back(ends_[i] - ends_[i - 1]);
        return seconds;
    }

  private:
    std::vector<double> ends_;
};

}  // namespace argosy::bench
