// Checks variables that cost speed or hide the fabric, whatever their values on other ranks. The table is in
// base/environment.h.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/environment.h"
#include "preflight/checks.h"
#include "preflight/places.h"

namespace argosy::preflight {
namespace {

bool fabric_between_nodes(const Cluster& cluster) {
    return cluster.nodes.size() > 1 && std::ranges::any_of(cluster.nodes, [](const NodeFacts& node) {
               return std::ranges::any_of(node.adapter_ports, &AdapterPort::active);
           });
}

/// Adds one finding for each harmful value that ranks have.
void apply(const SlowSetting& setting, const Cluster& cluster, std::vector<Finding>& findings) {
    if (!setting.matters({cluster.ranks.size() > cluster.nodes.size(), fabric_between_nodes(cluster)}))
        return;
    std::map<std::string, std::vector<int>> ranks_by_value;
    for (const RankFacts& rank : cluster.ranks) {
        const Variable* variable = rank.variable(setting.variable);
        if (!variable || !setting.holds(variable->value)) continue;
        ranks_by_value[describe(*variable)].push_back(rank.rank);
    }
    for (const auto& [value, ranks] : ranks_by_value) {
        findings.push_back(
            {.severity = setting.cost == SlowSetting::Cost::Ruins ? Severity::Fail : Severity::Warn,
             .check = setting.variable,
             .where = describe_ranks(ranks, cluster),
             .what = fmt::format("{}: {}", value, setting.why),
             .remedy = setting.remedy});
    }
}

}  // namespace

std::vector<Finding> check_single_variables(const Cluster& cluster) {
    std::vector<Finding> findings;
    for (const SlowSetting& setting : slow_settings()) apply(setting, cluster, findings);
    return findings;
}

}  // namespace argosy::preflight
