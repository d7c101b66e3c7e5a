// Finds rates that are too low among rates that should be alike. Pure arithmetic.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace argosy::preflight {

/// A rate that is below the others by far more than these differ among themselves.
struct Outlier {
    size_t index;
    double share;   // the rate divided by the others' median
    double zscore;  // deviations below that median; the deviation is robust (median absolute deviation)
};

/// The rates that are more than 10 % below the median of the others and have a robust z-score above 3.5. One
/// of two rates is too low if it is more than 10 % below the other. Rates that are not positive are ignored.
std::vector<Outlier> slow_ones(std::span<const double> rates);

/// The middle value, or the mean of the two middle values. REQUIRES: `values` is not empty.
double median(std::vector<double> values);

}  // namespace argosy::preflight
