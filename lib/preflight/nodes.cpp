#include "preflight/nodes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>

namespace argosy::preflight {

std::vector<Node> group_by_node(const std::vector<std::string>& names) {
    std::vector<Node> nodes;
    std::unordered_map<std::string, size_t> numbers;  // of the nodes
    for (size_t rank = 0; rank < names.size(); ++rank) {
        const auto [number, is_new] = numbers.try_emplace(names[rank], nodes.size());
        if (is_new) nodes.push_back({names[rank], {}});
        nodes[number->second].ranks.push_back(static_cast<int>(rank));
    }
    return nodes;
}

std::vector<std::string> names_of(const std::vector<Node>& nodes) {
    std::vector<std::string> names;
    for (const Node& node : nodes) names.push_back(node.name);
    return names;
}

std::string listed(const std::vector<std::string>& names) {
    constexpr size_t kMaxListed = 8;
    if (names.size() <= kMaxListed) return fmt::format("{}", fmt::join(names, ", "));
    return fmt::format("{} and {} more", fmt::join(names.begin(), names.begin() + kMaxListed, ", "),
                       names.size() - kMaxListed);
}

/// The circle method for round-robin schedules: the nodes stand in a circle, opposite nodes are partners, and
/// from round to round all nodes but one move on by one position. If the number of nodes is odd, one position
/// is empty, and the node opposite is alone.
std::vector<Round> rounds_of_pairs(int num_nodes, int max_rounds) {
    if (num_nodes < 2) return {};
    const int places = num_nodes + num_nodes % 2, num_rounds = places - 1;
    const int wanted = std::min(max_rounds, num_rounds);
    std::vector<Round> rounds;
    for (int i = 0; i < wanted; ++i) {
        const int turn = i * num_rounds / wanted;
        const auto at = [&](int place) { return place == 0 ? 0 : 1 + (place - 1 + turn) % num_rounds; };
        Round partners(places);
        for (int place = 0; place < places / 2; ++place) {
            const int left = at(place), right = at(places - 1 - place);
            partners[left] = right;
            partners[right] = left;
        }
        if (num_nodes % 2 == 1) partners[partners[num_nodes]] = partners[num_nodes];
        partners.resize(num_nodes);
        rounds.push_back(std::move(partners));
    }
    return rounds;
}

}  // namespace argosy::preflight
