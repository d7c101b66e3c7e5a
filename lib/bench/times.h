// The clock of this process that times iterations, and the numbers that describe a set of times.
#pragma once

#include <span>
#include <vector>

#include "base/clock.h"

namespace argosy::bench {

/// Times iterations with the clock of this process.
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

struct Distribution {
    double min = 0, max = 0, mean = 0;
    double p50 = 0, p99 = 0;
    double deviation = 0;  // population standard deviation

    /// The deviation in percent of the mean.
    double variation_percent() const { return mean > 0 ? 100 * deviation / mean : 0; }
};

/// Nearest-rank percentiles: p99 is the smallest of the times that at least 99 % of the times do not exceed
/// (the largest one if there are fewer than 100). REQUIRES: `times` is not empty.
Distribution distribution_of(std::span<const double> times);

}  // namespace argosy::bench
