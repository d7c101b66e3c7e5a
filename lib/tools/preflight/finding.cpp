#include "preflight/finding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "bench/collective.h"
#include "preflight/nodes.h"
#include "preflight/sources.h"

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

/// The members of kCheckNames.
auto all_check_names() {
    return std::bit_cast<std::array<const char*, sizeof(CheckNames) / sizeof(const char*)>>(kCheckNames);
}

/// Checks that have left. A site's --only-warn may still name them.
constexpr std::string_view kFormerNames[] = {"GPU compute mode",
                                             "GPU errors in the kernel's log",
                                             "GPU persistence",
                                             "NVLink clique",
                                             "NVLink registration",
                                             "NVLinks under load",
                                             "NVLinks",
                                             "adapters' PCIe links",
                                             "clocks",
                                             "copies to the device",
                                             "copies to the host",
                                             "host memory",
                                             "load",
                                             "open files"};
/// Limits that have left, and what judges the same now. A site's --threshold may still name them.
constexpr std::pair<std::string_view, const char*> kFormerThresholds[] = {
    {"clocks", "DCGM judges clocks"}, {"pcie", "'GPU PCIe link' judges links"}};

/// "NCCL_ALGO", "OMPI_MCA_btl_tcp_if_include".
bool is_variable(std::string_view name) {
    return name.find('_') != name.npos && name.find_first_of(" ,'") == name.npos && name[0] >= 'A' &&
           name[0] <= 'Z';
}

/// "all_gather over dp_shard".
bool is_operation(std::string_view name) {
    const auto collectives = bench::collectives();
    return std::ranges::any_of(collectives, [&](const bench::Collective& one) {
        return name.starts_with(std::string(one.name) + " over ");
    });
}

// The hunt for bad nodes (nodes.h) calls nodes above 0.75 good, so a higher limit would mean nothing.
constexpr Threshold kThresholds[] = {
    {"peers", &Thresholds::peers, 0.75, "the others' median: FAIL for devices, nodes and groups in a node"},
    {"line", &Thresholds::line, 1, "a node's adapters, between nodes: WARN"},
    {"line-fail", &Thresholds::line_fail, 1, "the same: FAIL for data of GPUs"},
    {"nvlink", &Thresholds::nvlink, 1, "NVLink, for collectives within a node: WARN"},
    {"peak", &Thresholds::peak, 1, "the datasheet, for sustained products: WARN"},
};

}  // namespace

bool is_check_name(const std::string& name) {
    if (name.starts_with(kResultOf)) return is_operation(name.substr(kResultOf.size()));
    const auto names = all_check_names();
    return std::ranges::find(names, name) != names.end() || is_variable(name) || is_operation(name) ||
           name.starts_with(kHistoryOf) || std::ranges::find(kFormerNames, name) != std::end(kFormerNames);
}

std::string check_names() { return fmt::format("{}", fmt::join(all_check_names(), ", ")); }

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

std::span<const Threshold> threshold_table() { return kThresholds; }

void set_threshold(const std::string& setting, Thresholds& thresholds) {
    const size_t end = std::min(setting.find('='), setting.size());
    const std::string name = setting.substr(0, end);
    for (const auto& [former, now] : kFormerThresholds) {
        if (name != former) continue;
        spdlog::warn("--threshold {}: this limit has left with its check; {}", setting, now);
        return;
    }
    const auto found = std::ranges::find(kThresholds, name, &Threshold::name);
    if (found == std::end(kThresholds)) {
        std::vector<std::string> names;
        for (const Threshold& one : kThresholds) names.emplace_back(one.name);
        throw UserError("--threshold {}: there is no limit of this name; there are {}", setting,
                        fmt::join(names, ", "));
    }
    const auto value = leading_number(setting.substr(std::min(end + 1, setting.size())));
    if (!value || *value <= 0 || *value > found->max)
        throw UserError("--threshold {}: write {}=SHARE, above 0 and at most {}", setting, found->name,
                        found->max);
    thresholds.*found->value = *value;
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
