// Which of several rates that should be alike are too low: pure arithmetic.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace argosy::preflight {

/// One that is lower than the others, far beyond how these differ among themselves.
struct Outlier {
    size_t index;
    double share;   // of the others' median
    double zscore;  // robust: how many deviations below that median, by the median of the others' deviations
};

/// Those more than 10 % below the median of the others, with a robust z-score of more than 3.5; of two rates
/// the lower, if it is 10 % below. Rates that are not positive belong to nobody, and are not looked at.
std::vector<Outlier> slow_ones(std::span<const double> rates);

/// The middle one, of an even number the mean of the two. REQUIRES: there are some.
double median(std::vector<double> values);

}  // namespace argosy::preflight
