#include "preflight/compare_speeds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "bench/collective.h"
#include "preflight/places.h"

namespace argosy::preflight {
namespace {

constexpr double kShareThatFails = 0.75;

Severity severity_of(const Outlier& one) {
    return one.share < kShareThatFails ? Severity::Fail : Severity::Warn;
}

std::string against(const Outlier& one, const char* others) {
    return fmt::format("{:.0f} % of the median of {} (robust z-score {:.1f})", 100 * one.share, others,
                       one.zscore);
}

/// Nodes are marked as bad only for a FAIL.
std::vector<std::string> at_fault(const Outlier& one, std::vector<std::string> names) {
    return severity_of(one) == Severity::Fail ? std::move(names) : std::vector<std::string>{};
}

void compare_products(const Speeds& speeds, const Cluster& cluster, std::vector<Finding>& findings) {
    for (const Outlier& one : slow_ones(speeds.products)) {
        const std::vector<int> rank = {static_cast<int>(one.index)};
        findings.push_back(
            {severity_of(one), "matrix products", describe_ranks(rank, cluster),
             fmt::format("{:.3g} TFLOP/s, {}", speeds.products[one.index] / 1e12,
                         against(one, "the other ranks")),
             "look at this device's clocks, heat and power, at other processes on it, and at the "
             "cores that the rank may run on; or leave the node out",
             at_fault(one, nodes_of(rank, cluster))});
    }
}

/// A slow group within a node is that node's fault. A slow group across nodes gets WARN only: the slow node
/// is unknown here (the measurement of node pairs shows it), and another job's traffic may be the reason.
Finding slow_group(const LoadSpeed& speed, size_t group, const Outlier& one, const Cluster& cluster) {
    const std::vector<int>& ranks = speed.load.groups[group];
    const std::vector<std::string> nodes = nodes_of(ranks, cluster);
    const bool within = nodes.size() == 1;
    return {.severity = within ? severity_of(one) : Severity::Warn,
            .check = fmt::format("{} over {}", speed.load.kind.collective->name, speed.load.axes),
            .where = describe_ranks(ranks, cluster),
            .what = fmt::format("bus bandwidth {:.3g} GB/s, {}", speed.bus_bandwidths[group] / 1e9,
                                against(one, "the other groups")),
            .remedy = within ? "look at the links between this node's devices (nvidia-smi nvlink -s, topo "
                               "-m); or leave the node out"
                             : "look at the adapters of these nodes and the switches between them: "
                               "nccl-bench sendrecv on two of them at a time finds the slow one",
            .bad_nodes = within ? at_fault(one, nodes) : std::vector<std::string>{}};
}

/// Compares a group only with groups that span the same number of nodes. If the mesh does not fit the nodes,
/// some groups cross more nodes than others.
void compare_groups(const LoadSpeed& speed, const Cluster& cluster, std::vector<Finding>& findings) {
    std::map<size_t, std::vector<size_t>> groups_by_num_nodes;
    for (size_t group = 0; group < speed.bus_bandwidths.size(); ++group) {
        groups_by_num_nodes[nodes_of(speed.load.groups[group], cluster).size()].push_back(group);
    }
    for (const auto& [num_nodes, groups] : groups_by_num_nodes) {
        std::vector<double> rates;
        for (const size_t group : groups) rates.push_back(speed.bus_bandwidths[group]);
        for (const Outlier& one : slow_ones(rates)) {
            findings.push_back(slow_group(speed, groups[one.index], one, cluster));
        }
    }
}

void compare_nodes(const Speeds& speeds, const Cluster& cluster, std::vector<Finding>& findings) {
    for (const Outlier& one : slow_ones(speeds.nodes)) {
        const std::string& name = cluster.nodes[one.index].name;
        findings.push_back(
            {severity_of(one), "pairs of nodes", name,
             fmt::format("at best {:.3g} GB/s out of the node with any partner, {}",
                         speeds.nodes[one.index] / 1e9, against(one, "the other nodes")),
             "look at its adapters' state, rate and cables (ibstat, ethtool), and at the variables "
             "that choose them; or leave the node out",
             at_fault(one, {name})});
    }
}

constexpr double kMaxShare = 0.9, kMinZscore = 3.5;
// The standard deviation of a normal distribution divided by its median absolute deviation.
constexpr double kDeviations = 1.4826;
// Minimum deviation, as a share of the median: a smaller spread says nothing about the normal spread.
constexpr double kMinDeviation = 0.01;

}  // namespace

std::vector<Finding> find_wrong_results(const Speeds& speeds) {
    std::vector<Finding> findings;
    for (const LoadSpeed& speed : speeds.loads) {
        if (speed.num_wrong == 0) continue;
        findings.push_back(
            {Severity::Fail, fmt::format("{} over {}", speed.load.kind.collective->name, speed.load.axes),
             "one of all ranks", fmt::format("{} elements of the result are wrong", speed.num_wrong),
             "a device, link or library corrupts data: nccl-bench on half of the nodes, and half of "
             "those, finds which"});
    }
    return findings;
}

std::vector<Finding> compare_speeds(const Speeds& speeds, const Cluster& cluster) {
    std::vector<Finding> findings;
    compare_products(speeds, cluster, findings);
    for (const LoadSpeed& speed : speeds.loads) compare_groups(speed, cluster, findings);
    compare_nodes(speeds, cluster, findings);
    return findings;
}

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    if (values.size() % 2 == 1) return *middle;
    return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

std::vector<Outlier> slow_ones(std::span<const double> rates) {
    std::vector<Outlier> outliers;
    for (size_t i = 0; i < rates.size(); ++i) {
        std::vector<double> others, deviations;
        for (size_t j = 0; j < rates.size(); ++j) {
            if (j != i && rates[j] > 0) others.push_back(rates[j]);
        }
        if (others.empty() || rates[i] <= 0) continue;
        const double middle = median(others);
        for (const double other : others) deviations.push_back(std::abs(other - middle));
        const double deviation = std::max(kDeviations * median(deviations), kMinDeviation * middle);
        const Outlier one{i, rates[i] / middle, (middle - rates[i]) / deviation};
        if (one.share < kMaxShare && one.zscore > kMinZscore) outliers.push_back(one);
    }
    return outliers;
}

}  // namespace argosy::preflight
