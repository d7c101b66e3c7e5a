// What the speeds of a job's ranks say: who is slower than the rest, and what came out wrong.
#pragma once

#include <vector>

#include "preflight/diagnose.h"
#include "preflight/finding.h"
#include "preflight/speed.h"

namespace argosy::preflight {

/// Whatever the speeds are.
std::vector<Finding> judge_results(const Speeds& speeds);

/// A rank, group or node that is more than 10 % slower than its like is worth a warning; below three quarters
/// of them the job would wait for it at every step, and it fails, but for a group across nodes. REQUIRES:
/// ranks that do not share cores.
std::vector<Finding> judge_speeds(const Speeds& speeds, const Cluster& cluster);

}  // namespace argosy::preflight
