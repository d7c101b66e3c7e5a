// Which rank runs on which node.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace argosy::preflight {

struct Node {
    std::string name;
    std::vector<int> ranks;  // ascending
};

/// Nodes in the order of their first ranks. `names`: of the node of each rank.
std::vector<Node> group_by_node(const std::vector<std::string>& names);

std::vector<std::string> names_of(const std::vector<Node>& nodes);

/// "n3", "n3, n4 and 6 more".
std::string listed(const std::vector<std::string>& names);

/// In each round every node has another partner; with an odd number one is alone (its own partner). At most
/// `most` of the rounds after which all have met, spread over them.
using Round = std::vector<int>;  // partner of each node
std::vector<Round> rounds_of_pairs(int num_nodes, int most);

}  // namespace argosy::preflight
