#include "preflight/finding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/text.h"

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

Severity severity_below(const Medians& usual, double value) {
    if (value < usual.lower) return Severity::Fail;
    return value < usual.upper ? Severity::Warn : Severity::Pass;
}

void append(std::vector<Finding> more, std::vector<Finding>& findings) {
    std::ranges::move(more, std::back_inserter(findings));
}

void only_warn(const std::vector<std::string>& checks, std::vector<Finding>& findings) {
    for (Finding& finding : findings) {
        if (finding.severity != Severity::Fail || std::ranges::find(checks, finding.check) == checks.end())
            continue;
        finding.severity = Severity::Warn;
        finding.bad_nodes.clear();
    }
}

Severity worst_severity(const std::vector<Finding>& findings) {
    Severity worst = Severity::Pass;
    for (const Finding& finding : findings) worst = std::max(worst, finding.severity);
    return worst;
}

std::string listed(const std::vector<std::string>& names) {
    constexpr size_t kMaxListed = 8;
    return argosy::listed(names, kMaxListed);
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

std::string describe(const Variable& variable) {
    return fmt::format("{}={}{}", variable.name, variable.value,
                       variable.file.empty() ? "" : fmt::format(" (in {})", variable.file));
}

void NodeFindings::add(const std::string& node, Problem problem) {
    const size_t number = numbers_.try_emplace(problem, found_.size()).first->second;
    if (number == found_.size()) found_.push_back({std::move(problem), {}});
    if (known_.emplace(number, node).second) found_[number].second.push_back(node);
}

std::vector<Finding> NodeFindings::findings(const Cluster& cluster) const {
    const size_t num_nodes = cluster.nodes.size();
    std::set<std::string> failing;  // with any of the problems: their texts may differ in the GPU's number
    for (const auto& [problem, nodes] : found_) {
        if (problem.severity == Severity::Fail) failing.insert(nodes.begin(), nodes.end());
    }
    const bool mostly = blame_ == Blame::Minority && 2 * failing.size() > num_nodes;
    const char* const mostly_text = num_nodes > 1 ? ", as on most nodes, so perhaps by design"
                                                  : "; no other node shows whether this is so by design";
    std::vector<Finding> findings;
    for (const auto& [problem, nodes] : found_) {
        const bool fails = problem.severity == Severity::Fail, by_design = fails && mostly;
        const bool bad = fails && !by_design && (blame_ != Blame::Deviants || nodes.size() < num_nodes);
        findings.push_back({.severity = by_design ? Severity::Warn : problem.severity,
                            .check = check_,
                            .where = describe_nodes(nodes, cluster),
                            .what = problem.what + (by_design ? mostly_text : ""),
                            .remedy = problem.remedy,
                            .bad_nodes = bad ? nodes : std::vector<std::string>{}});
    }
    return findings;
}

}  // namespace argosy::preflight
