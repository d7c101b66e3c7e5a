// What the speeds of a job's ranks say: who is slower than the rest, and what came out wrong.
#pragma once

#include <vector>

#include "preflight/diagnose.h"
#include "preflight/finding.h"
#include "preflight/speed.h"

namespace argosy::preflight {

/// A rank, group or node that is more than 10 % slower than its like is worth a warning; below three quarters
/// of them the job would wait for it at every step, and it fails.
std::vector<Finding> judge(const Speeds& speeds, const Cluster& cluster);

/// What is wrong whatever the speeds are: a part of `judge` by itself, for ranks that share their cores and
/// whose times therefore say nothing.
std::vector<Finding> judge_results(const Speeds& speeds);

}  // namespace argosy::preflight
