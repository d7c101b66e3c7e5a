// Compares measured speeds of ranks, groups and nodes with each other.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "preflight/diagnose.h"

namespace argosy::preflight {
namespace {

constexpr const char* kProductsRemedy =
    "check this device's clocks, heat and power, other processes on it, and the cores that the rank may run "
    "on; or leave the node out";

Severity severity_of(const Outlier& one) {
    return one.share < kMinShareOfPeers ? Severity::Fail : Severity::Warn;
}

std::string compared_with(const Outlier& one, const char* others) {
    return fmt::format("{:.0f} % of the median of {} (robust z-score {:.1f})", 100 * one.share, others,
                       one.zscore);
}

/// The nodes that a finding marks as bad: `names` for a FAIL, none for a WARN.
std::vector<std::string> at_fault(const Outlier& one, std::vector<std::string> names) {
    return severity_of(one) == Severity::Fail ? std::move(names) : std::vector<std::string>{};
}

/// The name of the GPU that a rank multiplies on; empty for a processor: all of a job should be alike.
std::string kind_of(size_t rank, const Speeds& speeds) {
    return rank < speeds.devices.size() ? speeds.devices[rank].name : "";
}

void compare_products(const Speeds& speeds, const Cluster& cluster, std::vector<Finding>& findings) {
    std::map<std::string, RankRates> kinds;
    for (size_t rank = 0; rank < speeds.products.size(); ++rank) {
        RankRates& rates =
            kinds
                .try_emplace(kind_of(rank, speeds),
                             RankRates{.check = kCheckNames.matrix_products, .remedy = kProductsRemedy})
                .first->second;
        rates.ranks.push_back(static_cast<int>(rank));
        rates.rates.push_back(speeds.products[rank]);
    }
    for (const auto& [kind, rates] : kinds) append(compare_ranks(rates, cluster), findings);
}

/// A slow group within a node is that node's fault. A slow group across nodes gets WARN only: the slow node
/// is unknown here (the measurement of node pairs shows it), and another job's traffic may be the reason.
Finding slow_group(const OperationSpeed& speed, size_t group, const Outlier& one, const Cluster& cluster) {
    const std::vector<int>& ranks = speed.operation.groups[group];
    const std::vector<std::string> nodes = nodes_of(ranks, cluster);
    const bool within = nodes.size() == 1;
    return {.severity = within ? severity_of(one) : Severity::Warn,
            .check = speed.operation.name(),
            .where = describe_ranks(ranks, cluster),
            .what = fmt::format("bus bandwidth {:.3g} GB/s, {}", speed.bus_bandwidths[group] / 1e9,
                                compared_with(one, "the other groups")),
            .remedy = within ? "check the links between this node's devices (nvidia-smi nvlink -s, "
                               "nvidia-smi topo -m); or leave the node out"
                             : "check the adapters of these nodes and the switches between them; "
                               "nccl-bench sendrecv on two of them at a time finds the slow one",
            .bad_nodes = within ? at_fault(one, nodes) : std::vector<std::string>{}};
}

/// Compares a group only with groups that span the same number of nodes. If the mesh does not fit the nodes,
/// some groups cross more nodes than others. A group across nodes has no finding if the pairs of nodes have
/// shown which of its ranks is slow.
void compare_groups(const OperationSpeed& speed, const Cluster& cluster, const std::set<int>& slow_ranks,
                    std::vector<Finding>& findings) {
    std::map<size_t, std::vector<size_t>> groups_by_num_nodes;
    for (size_t group = 0; group < speed.bus_bandwidths.size(); ++group) {
        groups_by_num_nodes[nodes_of(speed.operation.groups[group], cluster).size()].push_back(group);
    }
    for (const auto& [num_nodes, groups] : groups_by_num_nodes) {
        std::vector<double> rates;
        for (const size_t group : groups) rates.push_back(speed.bus_bandwidths[group]);
        for (const Outlier& one : slow_outliers(rates)) {
            const std::vector<int>& ranks = speed.operation.groups[groups[one.index]];
            const bool explained = num_nodes > 1 && std::ranges::any_of(ranks, [&](int rank) {
                                       return slow_ranks.contains(rank);
                                   });
            if (!explained) findings.push_back(slow_group(speed, groups[one.index], one, cluster));
        }
    }
}

/// The nodes that are slow for the number of ranks that send: nodes may differ in their number of ranks.
std::vector<Outlier> slow_nodes(const Speeds& speeds) {
    std::vector<double> rates = speeds.nodes;
    for (size_t node = 0; node < speeds.rails.size(); ++node) {
        const auto sends = [](double rate) { return rate > 0; };
        rates[node] /=
            static_cast<double>(std::max<int64_t>(1, std::ranges::count_if(speeds.rails[node], sends)));
    }
    return slow_outliers(rates);
}

void compare_nodes(const Speeds& speeds, const Cluster& cluster, std::vector<Finding>& findings) {
    for (const Outlier& one : slow_nodes(speeds)) {
        const std::string& name = cluster.nodes[one.index].name;
        findings.push_back(
            {severity_of(one), kCheckNames.pairs_of_nodes, name,
             fmt::format("the node sends at most {:.3g} GB/s to any other node, with each rank {}",
                         speeds.nodes[one.index] / 1e9, compared_with(one, "the other nodes")),
             "check its adapters' state, rate and cables (ibstat, ethtool), and the variables that choose "
             "them; or leave the node out",
             at_fault(one, {name})});
    }
}

/// The finding on a rank that exchanges slowly with the ranks at its place on other nodes.
Finding slow_rail(int node, size_t place, const Outlier& one, const Speeds& speeds, const Cluster& cluster,
                  const RanksByNode& ranks) {
    const std::string& name = cluster.nodes[node].name;
    return {
        severity_of(one),
        kCheckNames.rails,
        describe_ranks({ranks.on(cluster.nodes[node])[place]->rank}, cluster),
        fmt::format("the rank sends at most {:.3g} GB/s to the ranks at its place on other nodes, {}",
                    speeds.rails[node][place] / 1e9, compared_with(one, "the same rank of other nodes")),
        "check the adapter nearest to its GPU (ibstat, nvidia-smi topo -m), the cable and the switch port; "
        "or leave the node out",
        at_fault(one, {name})};
}

/// The rates of the ranks at one place on all nodes; 0: the node has no such rank.
std::vector<double> rates_at(size_t place, const Speeds& speeds) {
    std::vector<double> rates;
    for (const auto& rails : speeds.rails) rates.push_back(place < rails.size() ? rails[place] : 0);
    return rates;
}

size_t num_places(const Speeds& speeds) {
    size_t places = 0;
    for (const auto& rails : speeds.rails) places = std::max(places, rails.size());
    return places;
}

/// Compares the ranks at the same place on all nodes: a job waits for its slowest rail, which hardly shows in
/// the sum of eight. Adds no finding on a node that has one of compare_nodes() as severe. In a job of two
/// nodes, both nodes measure the same pairs, so the rails are compared with each other, and no node is bad.
void compare_rails(const Speeds& speeds, const Cluster& cluster, std::vector<Finding>& findings) {
    const RanksByNode ranks(cluster);
    if (speeds.rails.size() == 2) {
        for (const Outlier& one : slow_outliers(speeds.rails[0])) {
            Finding finding = slow_rail(0, one.index, one, speeds, cluster, ranks);
            finding.severity = Severity::Warn;
            finding.where += fmt::format(" and its counterpart on {}", cluster.nodes[1].name);
            finding.what = fmt::format("the pair exchanges {:.3g} GB/s, {}", speeds.rails[0][one.index] / 1e9,
                                       compared_with(one, "the other pairs"));
            finding.bad_nodes.clear();
            findings.push_back(std::move(finding));
        }
        return;
    }
    std::map<size_t, Severity> of_nodes;
    for (const Outlier& one : slow_nodes(speeds)) of_nodes[one.index] = severity_of(one);
    for (size_t place = 0; place < num_places(speeds); ++place) {
        for (const Outlier& one : slow_outliers(rates_at(place, speeds))) {
            const auto node = of_nodes.find(one.index);
            if (node != of_nodes.end() && severity_of(one) <= node->second) continue;
            findings.push_back(slow_rail(static_cast<int>(one.index), place, one, speeds, cluster, ranks));
        }
    }
}

/// The ranks that the findings on nodes and rails name.
std::set<int> slow_between_nodes(const Speeds& speeds, const Cluster& cluster) {
    const RanksByNode ranks(cluster);
    std::set<int> slow;
    const auto add = [&](size_t node, std::optional<size_t> place) {
        const auto& own = ranks.on(cluster.nodes[node]);
        for (size_t i = 0; i < own.size(); ++i) {
            if (!place || i == *place) slow.insert(own[i]->rank);
        }
    };
    for (const Outlier& one : slow_nodes(speeds)) add(one.index, {});
    for (size_t place = 0; place < num_places(speeds); ++place) {
        for (const Outlier& one : slow_outliers(rates_at(place, speeds))) add(one.index, place);
    }
    return slow;
}

constexpr double kMaxShare = 0.9, kMinZscore = 3.5;
// The standard deviation of a normal distribution divided by its median absolute deviation.
constexpr double kDeviations = 1.4826;
// Minimum deviation, as a share of the median. Rates that agree better than this do so by chance.
constexpr double kMinDeviation = 0.01;

/// The median of sorted values without one of them. REQUIRES: `one` is among them, and another value.
double median_without(const std::vector<double>& sorted, double one) {
    const auto skipped = static_cast<size_t>(std::ranges::lower_bound(sorted, one) - sorted.begin());
    const size_t count = sorted.size() - 1;
    const auto value = [&](size_t i) { return sorted[i < skipped ? i : i + 1]; };
    return count % 2 == 1 ? value(count / 2) : (value(count / 2 - 1) + value(count / 2)) / 2;
}

std::vector<double> sorted_distances(const std::vector<double>& values, double from) {
    std::vector<double> distances;
    for (const double value : values) distances.push_back(std::abs(value - from));
    std::ranges::sort(distances);
    return distances;
}

}  // namespace

std::vector<Finding> find_not_done(const Speeds& speeds, double deadline_seconds) {
    if (speeds.not_done.empty()) return {};
    return {{Severity::Warn, kCheckNames.deadline, "all nodes",
             fmt::format("{:.0f} s had passed, so these measurements were not done: {}", deadline_seconds,
                         listed(speeds.not_done)),
             "find out what took so long (the times in the log), or raise --deadline"}};
}

void weaken_if_cut_short(const Speeds& speeds, std::vector<Finding>& findings) {
    if (!speeds.pairs_cut_short) return;
    for (Finding& finding : findings) {
        finding.severity = Severity::Warn;
        finding.bad_nodes.clear();
        finding.what += "; not all pairs were measured, so perhaps its partners are at fault";
    }
}

std::vector<Finding> compare_speeds(const Speeds& speeds, const Cluster& cluster) {
    std::vector<Finding> findings;
    compare_products(speeds, cluster, findings);
    const std::set<int> slow_ranks = slow_between_nodes(speeds, cluster);
    for (const OperationSpeed& speed : speeds.operations)
        compare_groups(speed, cluster, slow_ranks, findings);
    std::vector<Finding> of_pairs;
    compare_nodes(speeds, cluster, of_pairs);
    compare_rails(speeds, cluster, of_pairs);
    weaken_if_cut_short(speeds, of_pairs);
    append(std::move(of_pairs), findings);
    return findings;
}

std::vector<Finding> compare_ranks(const RankRates& rates, const Cluster& cluster) {
    std::vector<Finding> findings;
    for (const Outlier& one : slow_outliers(rates.rates)) {
        const std::vector<int> rank = {rates.ranks[one.index]};
        const Severity severity = severity_of(one);
        findings.push_back(
            {severity, rates.check, describe_ranks(rank, cluster),
             fmt::format("{:.3g} TFLOP/s, {}", rates.rates[one.index] / 1e12,
                         compared_with(one, "the other devices of its kind")),
             rates.remedy,
             severity == Severity::Fail ? nodes_of(rank, cluster) : std::vector<std::string>{}});
    }
    return findings;
}

std::vector<Outlier> slow_outliers(std::span<const double> rates) {
    std::vector<double> measured;
    std::ranges::copy_if(rates, std::back_inserter(measured), [](double rate) { return rate > 0; });
    std::ranges::sort(measured);
    std::map<double, std::vector<double>> deviations;  // by the median of the others, which has few values
    std::vector<Outlier> outliers;
    for (size_t i = 0; i < rates.size(); ++i) {
        if (rates[i] <= 0 || measured.size() < 2) continue;
        const double middle = median_without(measured, rates[i]);
        std::vector<double>& from_middle = deviations[middle];
        if (from_middle.empty()) from_middle = sorted_distances(measured, middle);
        const double others = median_without(from_middle, std::abs(rates[i] - middle));
        const double deviation = std::max(kDeviations * others, kMinDeviation * middle);
        const Outlier one{i, rates[i] / middle, (middle - rates[i]) / deviation};
        if (one.share < kMaxShare && one.zscore > kMinZscore) outliers.push_back(one);
    }
    return outliers;
}

}  // namespace argosy::preflight
