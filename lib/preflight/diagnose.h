// Finds what is wrong with a set of nodes, from the facts that their ranks collected. diagnose() is a pure
// function, so every rank gets the same findings.
#pragma once

#include <vector>

#include "preflight/facts.h"
#include "preflight/finding.h"

namespace argosy::preflight {

/// The facts of all ranks and nodes.
struct Cluster {
    std::vector<RankFacts> ranks;            // by rank
    std::vector<NodeFacts> nodes;            // in the order of their first ranks
    std::vector<double> clock_offsets = {};  // by rank, seconds; empty: not measured
};

/// All findings, in the order of the checks. Equal problems on several nodes or ranks make one finding.
std::vector<Finding> diagnose(const Cluster& cluster);

}  // namespace argosy::preflight
