// Variables that cost speed or hide the fabric whatever the other ranks have: each a row of a table.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "preflight/checks.h"
#include "preflight/places.h"
#include "preflight/sources.h"

namespace argosy::preflight {
namespace {

struct Rule {
    const char* variable;
    bool (*holds)(std::string value, const Cluster&);
    Verdict verdict;
    const char* why;
    const char* remedy = "unset it";
};

std::string lower(std::string text) {
    std::ranges::transform(text, text.begin(), [](unsigned char letter) { return std::tolower(letter); });
    return text;
}

bool on(const std::string& value) { return leading_integer(value).value_or(0) != 0; }

bool several_ranks_a_node(const Cluster& cluster) { return cluster.ranks.size() > cluster.nodes.size(); }

bool fabric_between_nodes(const Cluster& cluster) {
    return cluster.nodes.size() > 1 && std::ranges::any_of(cluster.nodes, [](const NodeFacts& node) {
               return std::ranges::any_of(node.adapter_ports, &AdapterPort::active);
           });
}

bool is_set(std::string value, const Cluster&) { return !value.empty(); }
bool is_on(std::string value, const Cluster&) { return on(value); }
bool is_pinned(std::string value, const Cluster&) { return leading_integer(value).value_or(-1) >= 0; }
bool prints_much(std::string value, const Cluster&) {
    value = lower(std::move(value));
    return value == "info" || value == "trace";
}
bool parts_a_node(std::string value, const Cluster& cluster) {
    return on(value) && several_ranks_a_node(cluster);
}
bool keeps_gpus_apart(std::string value, const Cluster& cluster) {
    return (lower(value) == "loc" || value == "0") && several_ranks_a_node(cluster);
}
bool leaves_fabric(std::string value, const Cluster& cluster) {
    return on(value) && fabric_between_nodes(cluster);
}
bool is_socket(std::string value, const Cluster& cluster) {
    return lower(std::move(value)) == "socket" && fabric_between_nodes(cluster);
}

constexpr const char* kSlowsGpus = "the host waits for each kernel: nothing overlaps, several times slower";
constexpr const char* kByTcp = "the adapters stay unused and all goes over TCP, ten times slower and more";
constexpr const char* kForced =
    "a forced choice holds for every size and collective, and stays when its reason has gone";
constexpr const char* kShowGain = "unset it, unless nccl-bench shows its gain on these nodes";

constexpr Rule kRules[] = {
    {"CUDA_LAUNCH_BLOCKING", is_on, Verdict::Fail, kSlowsGpus},
    {"NCCL_DEBUG", prints_much, Verdict::Warn,
     "every rank prints much, and with TRACE or all of NCCL_DEBUG_SUBSYS at every operation",
     "set it to WARN, or unset it"},
    {"NCCL_P2P_DISABLE", parts_a_node, Verdict::Warn,
     "GPUs of a node reach each other through host memory only"},
    {"NCCL_P2P_LEVEL", keeps_gpus_apart, Verdict::Warn,
     "GPUs of a node reach each other through host memory only"},
    {"NCCL_SHM_DISABLE", parts_a_node, Verdict::Warn, "ranks of a node may not share memory"},
    {"NCCL_IB_DISABLE", leaves_fabric, Verdict::Fail, kByTcp},
    {"NCCL_NET", is_socket, Verdict::Fail, kByTcp},
    {"NCCL_ALGO", is_set, Verdict::Warn, kForced, kShowGain},
    {"NCCL_PROTO", is_set, Verdict::Warn, kForced, kShowGain},
    {"NCCL_IB_GID_INDEX", is_pinned, Verdict::Warn,
     "a pinned index is often another cluster's, and NCCL finds the right one", "unset it"},
    {"PYTORCH_NO_CUDA_MEMORY_CACHING", is_set, Verdict::Warn,
     "each tensor is a cudaMalloc that waits for the GPU"},
    {"MALLOC_CHECK_", is_on, Verdict::Warn, "each malloc and free is checked"},
    {"MALLOC_PERTURB_", is_on, Verdict::Warn, "each malloc and free fills its memory"},
};

/// One finding for each value that ranks have.
void apply(const Rule& rule, const Cluster& cluster, std::vector<Finding>& findings) {
    std::map<std::string, std::vector<int>> ranks_by_setting;
    for (const RankFacts& rank : cluster.ranks) {
        const Variable* variable = rank.variable(rule.variable);
        if (!variable || !rule.holds(variable->value, cluster)) continue;
        ranks_by_setting[describe(*variable)].push_back(rank.rank);
    }
    for (const auto& [setting, ranks] : ranks_by_setting) {
        findings.push_back({.verdict = rule.verdict,
                            .check = rule.variable,
                            .where = describe_ranks(ranks, cluster),
                            .what = fmt::format("{}: {}", setting, rule.why),
                            .remedy = rule.remedy});
    }
}

}  // namespace

std::vector<Finding> check_single_variables(const Cluster& cluster) {
    std::vector<Finding> findings;
    for (const Rule& rule : kRules) apply(rule, cluster, findings);
    return findings;
}

}  // namespace argosy::preflight
