// Numbers about a set of times.
#pragma once

#include <span>

namespace argosy::bench {

struct Distribution {
    double min = 0, max = 0, mean = 0;
    double p50 = 0, p99 = 0;
    double deviation = 0;  // of the whole set

    /// Deviation in percent of the mean.
    double variation_percent() const { return mean > 0 ? 100 * deviation / mean : 0; }
};

/// A percentile is the smallest time that at least so many percent do not exceed, so it is one of the times;
/// with fewer than 100 of them the 99th is the largest. REQUIRES: not empty.
Distribution distribution_of(std::span<const double> times);

}  // namespace argosy::bench
