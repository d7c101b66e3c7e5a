// Numbers about a set of times.
#pragma once

#include <span>

namespace argosy::bench {

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
