#include "preflight/finding.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "preflight/nodes.h"

namespace argosy::preflight {
namespace {

/// "0-3", "9".
std::vector<std::string> runs_of(const std::vector<int>& numbers) {
    std::vector<std::string> runs;
    for (size_t first = 0, last = 0; first < numbers.size(); first = ++last) {
        while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
        runs.push_back(first == last ? fmt::format("{}", numbers[first])
                                     : fmt::format("{}-{}", numbers[first], numbers[last]));
    }
    return runs;
}

}  // namespace

const char* name(Severity severity) {
    constexpr const char* kNames[] = {"PASS", "WARN", "FAIL"};
    return kNames[static_cast<int>(severity)];
}

void append(std::vector<Finding> more, std::vector<Finding>& findings) {
    std::ranges::move(more, std::back_inserter(findings));
}

Severity worst_severity(const std::vector<Finding>& findings) {
    Severity worst = Severity::Pass;
    for (const Finding& finding : findings) worst = std::max(worst, finding.severity);
    return worst;
}

std::string describe_ranks(const std::vector<int>& ranks, const Cluster& cluster) {
    if (ranks.size() == cluster.ranks.size() && ranks.size() > 1) return "all ranks";
    const std::string numbers =
        fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", listed(runs_of(ranks)));
    const std::vector<std::string> nodes = nodes_of(ranks, cluster);
    return nodes.size() == cluster.nodes.size() && nodes.size() > 1
               ? numbers
               : fmt::format("{} on {}", numbers, listed(nodes));
}

std::string describe_nodes(const std::vector<std::string>& nodes, const Cluster& cluster) {
    return nodes.size() == cluster.nodes.size() && nodes.size() > 1 ? "all nodes" : listed(nodes);
}

std::vector<std::string> nodes_of(const std::vector<int>& ranks, const Cluster& cluster) {
    std::vector<std::string> nodes;
    std::set<std::string> seen;
    for (const int rank : ranks) {
        const std::string& node = cluster.ranks[rank].node;
        if (seen.insert(node).second) nodes.push_back(node);
    }
    return nodes;
}

int ranks_on(const std::string& node, const Cluster& cluster) {
    return static_cast<int>(std::ranges::count(cluster.ranks, node, &RankFacts::node));
}

const Variable* variable_on(const std::string& node, const std::string& name, const Cluster& cluster) {
    const auto rank = std::ranges::find(cluster.ranks, node, &RankFacts::node);
    return rank == cluster.ranks.end() ? nullptr : rank->variable(name);
}

std::string describe(const Variable& variable) {
    return fmt::format("{}={}{}", variable.name, variable.value,
                       variable.file.empty() ? "" : fmt::format(" (in {})", variable.file));
}

double upper_median(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::ranges::nth_element(values, middle);
    return *middle;
}

void NodeFindings::add(const std::string& node, Words words) {
    const auto known = std::ranges::find(found_, words, &decltype(found_)::value_type::first);
    if (known == found_.end()) {
        found_.push_back({std::move(words), {node}});
    } else if (known->second.back() != node) {
        known->second.push_back(node);
    }
}

std::vector<Finding> NodeFindings::findings(const Cluster& cluster) const {
    std::vector<Finding> findings;
    for (const auto& [words, nodes] : found_) {
        const bool all = nodes.size() == cluster.nodes.size();
        const bool bad = words.severity == Severity::Fail && (blame_ == Blame::Always || !all);
        findings.push_back({.severity = words.severity,
                            .check = check_,
                            .where = describe_nodes(nodes, cluster),
                            .what = words.what,
                            .remedy = words.remedy,
                            .bad_nodes = bad ? nodes : std::vector<std::string>{}});
    }
    return findings;
}

}  // namespace argosy::preflight
