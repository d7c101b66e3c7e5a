#include "bench/times.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.h"

namespace argosy::bench {

Distribution distribution_of(std::span<const double> times) {
    ARGOSY_CHECK(!times.empty());
    std::vector<double> sorted(times.begin(), times.end());
    std::ranges::sort(sorted);
    const auto count = static_cast<double>(sorted.size());
    const auto percentile = [&](size_t percent) { return sorted[(sorted.size() * percent + 99) / 100 - 1]; };
    Distribution result{.min = sorted.front(),
                        .max = sorted.back(),
                        .mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / count,
                        .p50 = percentile(50),
                        .p99 = percentile(99)};
    double squares = 0;
    for (const double time : sorted) squares += (time - result.mean) * (time - result.mean);
    result.deviation = std::sqrt(squares / count);
    return result;
}

}  // namespace argosy::bench
