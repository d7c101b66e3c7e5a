// Findings from the measured speeds of a job's ranks: ranks, groups and nodes that are slower than the
// others, and collectives with wrong results.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "preflight/diagnose.h"
#include "preflight/finding.h"
#include "preflight/speed.h"

namespace argosy::preflight {

/// A FAIL for each collective whose result had wrong elements, whatever the speeds are.
std::vector<Finding> find_wrong_results(const Speeds& speeds);

/// A rank, group or node that is more than 10 % below the median of the others gets WARN. Below three
/// quarters of the median it gets FAIL, because the job would wait for it at every step; a group across nodes
/// gets WARN even then. REQUIRES: ranks do not share cores.
std::vector<Finding> compare_speeds(const Speeds& speeds, const Cluster& cluster);

// Finds rates that are too low among rates that should be alike. Pure arithmetic.

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
