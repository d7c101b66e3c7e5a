// The nodes of a job, their names, the ranks on each, and the pairs in which nodes exchange data.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace argosy::preflight {

struct Node {
    std::string name;
    std::vector<int> ranks;  // ascending
};

/// Nodes in the order of their first ranks. `names` has the node's name for each rank.
std::vector<Node> group_by_node(const std::vector<std::string>& names);

std::vector<std::string> names_of(const std::vector<Node>& nodes);

/// "n3", "n3, n4". Lists the first eight names and the number of the others: "n1, ..., n8 and 6 more".
std::string listed(const std::vector<std::string>& names);

/// Rounds in which nodes are paired. A node has a different partner in each round. If the number of nodes is
/// odd, one node per round is alone (its own partner). The full schedule pairs every node with every other
/// node. The function returns at most `max_rounds` rounds, spread evenly over the full schedule.
using Round = std::vector<int>;  // partner of each node
std::vector<Round> rounds_of_pairs(int num_nodes, int max_rounds);

}  // namespace argosy::preflight
