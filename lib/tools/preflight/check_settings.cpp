// Checks the settings that ranks start with: variables, the executable and libraries are the same on all
// ranks, no variable costs speed or hides the fabric, and the interfaces that variables choose exist and are
// up. slow_settings() in base/environment.h lists the harmful variables.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/environment.h"
#include "preflight/diagnose.h"
#include "preflight/finding.h"
#include "preflight/sources.h"

namespace argosy::preflight {
namespace {

/// Values and the ranks that have each, the most frequent value first.
using Values = std::vector<std::pair<std::string, std::vector<int>>>;

template <class ValueOf>
Values values_of(const Cluster& cluster, const ValueOf& value_of) {
    std::map<std::string, std::vector<int>> ranks_by_value;
    for (const RankFacts& rank : cluster.ranks) ranks_by_value[value_of(rank)].push_back(rank.rank);
    Values values(ranks_by_value.begin(), ranks_by_value.end());
    std::ranges::stable_sort(values, std::greater(), [](const auto& entry) { return entry.second.size(); });
    return values;
}

/// "'Ring' on 30 ranks; 'Tree' on rank 5 on n3".
std::string describe_values(const Values& values, const Cluster& cluster) {
    constexpr size_t kMaxShown = 4;
    std::string text = fmt::format("{} on {} ranks", values[0].first, values[0].second.size());
    for (size_t i = 1; i < std::min(values.size(), kMaxShown); ++i) {
        text += fmt::format("; {} on {}", values[i].first, describe_ranks(values[i].second, cluster));
    }
    return values.size() > kMaxShown ? fmt::format("{}; and {} more", text, values.size() - kMaxShown) : text;
}

/// Nodes on which no rank has the most frequent value. Empty if no value has a majority of the ranks, because
/// it is then unknown which value is wrong.
std::vector<std::string> deviant_nodes(const Values& values, const Cluster& cluster) {
    if (2 * values[0].second.size() <= cluster.ranks.size()) return {};
    const std::vector<std::string> right = nodes_of(values[0].second, cluster);
    std::vector<std::string> deviant;
    for (const NodeFacts& node : cluster.nodes) {
        if (std::ranges::find(right, node.name) == right.end()) deviant.push_back(node.name);
    }
    return deviant;
}

/// The ranks that do not have the most frequent value.
std::vector<int> minority(const Values& values) {
    std::vector<int> ranks;
    for (size_t i = 1; i < values.size(); ++i) {
        ranks.insert(ranks.end(), values[i].second.begin(), values[i].second.end());
    }
    std::ranges::sort(ranks);
    return ranks;
}

Finding difference(const std::string& check, Severity severity, const Values& values, const Cluster& cluster,
                   const char* remedy) {
    return {.severity = severity,
            .check = check,
            .where = describe_ranks(minority(values), cluster),
            .what = "differs between ranks: " + describe_values(values, cluster),
            .remedy = remedy,
            .bad_nodes =
                severity == Severity::Fail ? deviant_nodes(values, cluster) : std::vector<std::string>{}};
}

/// Variables that may differ: Slurm, mpirun or jobs/bind.sh set them for each rank or node on purpose, or
/// they do not affect other ranks.
constexpr std::string_view kMayDiffer[] = {"CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "NCCL_DEBUG_FILE",
                                           "NCCL_HOSTID",          "OMP_NUM_THREADS",    "OMP_PLACES",
                                           "UCX_NET_DEVICES",      "GOMP_CPU_AFFINITY"};
/// Variables whose difference is only a WARN. Most hold names of devices or files, which may differ by node.
constexpr std::string_view kMayDifferByNode[] = {
    "NCCL_SOCKET_IFNAME",          "NCCL_IB_HCA", "NCCL_TOPO_FILE",
    "OMPI_MCA_btl_tcp_if_include", "NCCL_DEBUG",  "NCCL_DEBUG_SUBSYS",
    "OMPI_MCA_oob_tcp_if_include"};
constexpr std::string_view kProtocols[] = {"NCCL_", "UCX_", "OMPI_MCA_"};

bool may_differ(const std::string& name) {
    return name.starts_with("SLURM_") || std::ranges::find(kMayDiffer, name) != std::end(kMayDiffer);
}

/// FAIL for variables of the communication libraries: ranks that disagree on a protocol hang or fail.
Severity severity_of_difference(const std::string& name) {
    const bool protocol =
        std::ranges::any_of(kProtocols, [&](auto prefix) { return name.starts_with(prefix); });
    return protocol && std::ranges::find(kMayDifferByNode, name) == std::end(kMayDifferByNode)
               ? Severity::Fail
               : Severity::Warn;
}

bool fabric_between_nodes(const Cluster& cluster) {
    return cluster.nodes.size() > 1 && std::ranges::any_of(cluster.nodes, [](const NodeFacts& node) {
               return std::ranges::any_of(node.adapter_ports, &AdapterPort::carries_data);
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

struct Choice {
    const char* variable;
    NameList::Syntax syntax;
};
constexpr Choice kChoices[] = {
    {"NCCL_SOCKET_IFNAME", NameList::Syntax::Nccl},
    {"OMPI_MCA_btl_tcp_if_include", NameList::Syntax::WholeNames},
    {"OMPI_MCA_oob_tcp_if_include", NameList::Syntax::WholeNames},
};

bool is_up(const Interface& interface) { return interface.state == "up" || interface.state == "unknown"; }

/// Whether a variable chooses an interface that is up on each node.
void check_choice(const Choice& choice, const Cluster& cluster, std::vector<Finding>& findings) {
    NodeFindings settings(choice.variable), links(choice.variable, Blame::Always);
    const RanksByNode ranks(cluster);
    for (const NodeFacts& node : cluster.nodes) {
        const Variable* variable = ranks.variable(choice.variable, node);
        if (!variable) continue;
        const NameList list(variable->value, choice.syntax);
        bool any_up = list.entries().empty();
        std::string down;
        for (const Interface& interface : node.interfaces) {
            if (!list.chooses(interface.name)) continue;
            any_up |= is_up(interface);
            down += (down.empty() ? "" : ", ") + interface.name;
        }
        if (any_up) continue;
        if (down.empty()) {
            settings.add(node.name,
                         {Severity::Fail, describe(*variable) + " matches no interface of the node",
                          "name an interface that `ip link` shows on every node"});
        } else {
            links.add(node.name, {Severity::Fail, fmt::format("{}: {} is down", describe(*variable), down),
                                  "leave the node out, or bring the interface up"});
        }
    }
    append(settings.findings(cluster), findings);
    append(links.findings(cluster), findings);
}

}  // namespace

std::vector<Finding> check_variables_alike(const Cluster& cluster) {
    std::set<std::string> names;
    for (const RankFacts& rank : cluster.ranks) {
        for (const Variable& variable : rank.variables) names.insert(variable.name);
    }
    std::vector<Finding> findings;
    for (const std::string& name : names) {
        if (may_differ(name)) continue;
        const Values values = values_of(cluster, [&](const RankFacts& rank) {
            const Variable* variable = rank.variable(name);
            return variable ? fmt::format("'{}'", variable->value) : "unset";
        });
        if (values.size() < 2) continue;
        findings.push_back(difference(name, severity_of_difference(name), values, cluster,
                                      "export it before the ranks are started (mpirun: -x), and look at "
                                      "the nodes' shell profiles and nccl.conf"));
    }
    return findings;
}

std::vector<Finding> check_programs_alike(const Cluster& cluster) {
    struct Part {
        const char* name;
        std::string RankFacts::*value;
    };
    constexpr Part kParts[] = {{kCheckNames.executable, &RankFacts::executable_hash},
                               {kCheckNames.argosy_version, &RankFacts::argosy_version},
                               {kCheckNames.mpi_library, &RankFacts::mpi_library},
                               {kCheckNames.cuda_version, &RankFacts::cuda_version},
                               {kCheckNames.nccl_version, &RankFacts::nccl_version}};
    std::vector<Finding> findings;
    for (const Part& part : kParts) {
        const Values values = values_of(cluster, [&](const RankFacts& rank) {
            const std::string& value = rank.*part.value;
            return value.empty() ? "unknown" : value;
        });
        if (values.size() < 2) continue;
        findings.push_back(
            difference(part.name, Severity::Fail, values, cluster,
                       "start the same build, with the same modules or container, on all nodes"));
    }
    return findings;
}

std::vector<Finding> check_run_inputs_alike(const Cluster& cluster) {
    std::vector<Finding> findings;
    for (const mpi::Difference& one : cluster.differences) {
        findings.push_back(difference(kCheckNames.run_inputs, Severity::Fail, one.values, cluster,
                                      "start every rank with the same options, and copy the same files to "
                                      "all nodes"));
        findings.back().what = one.key + " " + findings.back().what;
    }
    if (cluster.late_ranks.empty()) return findings;
    findings.push_back(
        {.severity = Severity::Warn,
         .check = kCheckNames.run_inputs,
         .where = describe_ranks(cluster.late_ranks, cluster),
         .what =
             "the token files, config.json and the tokenizer are not read in time: their contents were not "
             "compared between ranks",
         .remedy =
             "check the file system of these files there; pretrain waits for it, and compares the contents "
             "before it trains"});
    return findings;
}

std::vector<Finding> check_slow_settings(const Cluster& cluster) {
    std::vector<Finding> findings;
    for (const SlowSetting& setting : slow_settings()) apply(setting, cluster, findings);
    return findings;
}

std::vector<Finding> check_interfaces(const Cluster& cluster) {
    std::vector<Finding> findings;
    for (const Choice& choice : kChoices) check_choice(choice, cluster, findings);
    return findings;
}

}  // namespace argosy::preflight
