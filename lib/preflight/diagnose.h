// What is wrong with a set of nodes, out of what their ranks saw: a pure function, the same on every rank.
#pragma once

#include <vector>

#include "preflight/facts.h"
#include "preflight/finding.h"

namespace argosy::preflight {

/// All that was seen.
struct Cluster {
    std::vector<RankFacts> ranks;            // by rank
    std::vector<NodeFacts> nodes;            // in the order of their first ranks
    std::vector<double> clock_offsets = {};  // by rank, seconds; empty: not measured
};

/// In the order of the checks; what is alike on several nodes or ranks is one finding.
std::vector<Finding> diagnose(const Cluster& cluster);

}  // namespace argosy::preflight
