// Findings from the measured speeds of a job's ranks: ranks, groups and nodes that are slower than the
// others, and collectives with wrong results.
#pragma once

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

}  // namespace argosy::preflight
