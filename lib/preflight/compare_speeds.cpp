#include "preflight/compare_speeds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "bench/collective.h"
#include "preflight/finding.h"
#include "preflight/sources.h"

namespace argosy::preflight {
namespace {

constexpr double kMinShareForWarn = 0.75;  // of the others' median: below it an outlier gets FAIL

Severity severity_of(const Outlier& one) {
    return one.share < kMinShareForWarn ? Severity::Fail : Severity::Warn;
}

std::string compared_with(const Outlier& one, const char* others) {
    return fmt::format("{:.0f} % of the median of {} (robust z-score {:.1f})", 100 * one.share, others,
                       one.zscore);
}

/// The nodes that a finding marks as bad: `names` for a FAIL, none for a WARN.
std::vector<std::string> at_fault(const Outlier& one, std::vector<std::string> names) {
    return severity_of(one) == Severity::Fail ? std::move(names) : std::vector<std::string>{};
}

/// "all_gather over dp_shard".
std::string name_of(const StepOperation& operation) {
    return fmt::format("{} over {}", operation.kind.collective->name, operation.axes);
}

void compare_products(const Speeds& speeds, const Cluster& cluster, std::vector<Finding>& findings) {
    RankRates rates{.check = "matrix products",
                    .rates = speeds.products,
                    .others = "the other ranks",
                    .remedy =
                        "check this device's clocks, heat and power, other processes on it, and the "
                        "cores that the rank may run on; or leave the node out"};
    for (size_t rank = 0; rank < speeds.products.size(); ++rank)
        rates.ranks.push_back(static_cast<int>(rank));
    append(compare_ranks(rates, cluster), findings);
}

/// A slow group within a node is that node's fault. A slow group across nodes gets WARN only: the slow node
/// is unknown here (the measurement of node pairs shows it), and another job's traffic may be the reason.
Finding slow_group(const OperationSpeed& speed, size_t group, const Outlier& one, const Cluster& cluster) {
    const std::vector<int>& ranks = speed.operation.groups[group];
    const std::vector<std::string> nodes = nodes_of(ranks, cluster);
    const bool within = nodes.size() == 1;
    return {.severity = within ? severity_of(one) : Severity::Warn,
            .check = name_of(speed.operation),
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
/// some groups cross more nodes than others.
void compare_groups(const OperationSpeed& speed, const Cluster& cluster, std::vector<Finding>& findings) {
    std::map<size_t, std::vector<size_t>> groups_by_num_nodes;
    for (size_t group = 0; group < speed.bus_bandwidths.size(); ++group) {
        groups_by_num_nodes[nodes_of(speed.operation.groups[group], cluster).size()].push_back(group);
    }
    for (const auto& [num_nodes, groups] : groups_by_num_nodes) {
        std::vector<double> rates;
        for (const size_t group : groups) rates.push_back(speed.bus_bandwidths[group]);
        for (const Outlier& one : slow_outliers(rates)) {
            findings.push_back(slow_group(speed, groups[one.index], one, cluster));
        }
    }
}

void compare_nodes(const Speeds& speeds, const Cluster& cluster, std::vector<Finding>& findings) {
    for (const Outlier& one : slow_outliers(speeds.nodes)) {
        const std::string& name = cluster.nodes[one.index].name;
        findings.push_back(
            {severity_of(one), "pairs of nodes", name,
             fmt::format("the node sends at most {:.3g} GB/s to any other node, {}",
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
        "rails between nodes",
        describe_ranks({ranks.on(cluster.nodes[node])[place]->rank}, cluster),
        fmt::format("the rank sends at most {:.3g} GB/s to the ranks at its place on other nodes, {}",
                    speeds.rails[node][place] / 1e9, compared_with(one, "the same rank of other nodes")),
        "check the adapter nearest to its GPU (ibstat, nvidia-smi topo -m), the cable and the switch port; "
        "or leave the node out",
        at_fault(one, {name})};
}

/// Compares the ranks at the same place on all nodes: a job waits for its slowest rail, which hardly shows in
/// the sum of eight. A finding of compare_nodes() that is as severe says enough. In a job of two nodes,
/// both measure the same pairs, so their rails are compared with each other, and neither node is named as
/// bad.
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
    std::map<size_t, Severity> slow_nodes;
    for (const Outlier& one : slow_outliers(speeds.nodes)) slow_nodes[one.index] = severity_of(one);
    size_t num_places = 0;
    for (const auto& rails : speeds.rails) num_places = std::max(num_places, rails.size());
    for (size_t place = 0; place < num_places; ++place) {
        std::vector<double> rates;
        for (const auto& rails : speeds.rails) rates.push_back(place < rails.size() ? rails[place] : 0);
        for (const Outlier& one : slow_outliers(rates)) {
            const auto node = slow_nodes.find(one.index);
            if (node != slow_nodes.end() && severity_of(one) <= node->second) continue;
            findings.push_back(slow_rail(static_cast<int>(one.index), place, one, speeds, cluster, ranks));
        }
    }
}

/// A node is bad if data was corrupted between it and several others.
std::vector<Finding> find_wrong_pairs(const Speeds& speeds, const Cluster& cluster) {
    std::map<int, int> num_partners;
    for (const WrongPair& pair : speeds.wrong_pairs) ++num_partners[pair.first], ++num_partners[pair.second];
    std::vector<Finding> findings;
    for (const WrongPair& pair : speeds.wrong_pairs) {
        const std::vector<std::string> names = {cluster.nodes[pair.first].name,
                                                cluster.nodes[pair.second].name};
        std::vector<std::string> bad;
        for (const int node : {pair.first, pair.second}) {
            if (num_partners[node] > 1) bad.push_back(cluster.nodes[node].name);
        }
        findings.push_back(
            {Severity::Fail, "data between nodes", describe_nodes(names, cluster),
             fmt::format("{} elements that they exchanged are wrong", pair.num_wrong),
             "an adapter, cable or switch between them corrupts data: exchange with other nodes "
             "(nccl-bench sendrecv) to find the one at fault, and leave it out",
             bad});
    }
    return findings;
}

constexpr double kMaxShare = 0.9, kMinZscore = 3.5;
// The standard deviation of a normal distribution divided by its median absolute deviation.
constexpr double kDeviations = 1.4826;
// Minimum deviation, as a share of the median. Rates that agree better than this do so by chance.
constexpr double kMinDeviation = 0.01;

constexpr double kBytesPerGigabit = 1e9 / 8, kBytesPerMegabit = 1e6 / 8;
constexpr double kMinLineShare = 0.7;     // expected share of a line's rate, for large messages
constexpr double kMinDirectShare = 0.25;  // below this share, data does not take the fastest path
constexpr double kMinNvlinkShare = 0.5;
constexpr size_t kMinBytes = 16 << 20;  // smaller messages do not saturate a link

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

struct NvlinkRate {
    std::string_view name;  // the start of the driver's name for the GPU, without "NVIDIA "
    double bytes;           // per second
};
// Rates in one direction: half of the numbers in NVIDIA's datasheets.
constexpr NvlinkRate kNvlinkRates[] = {
    {"A100-SXM4", 300e9}, {"A800-SXM4", 200e9}, {"H100 80GB HBM3", 450e9}, {"H800", 200e9},
    {"H200", 450e9},      {"H20", 450e9},       {"B200", 900e9},           {"GB200", 900e9},
};

std::optional<double> adapters_rate(const NodeFacts& node, const RanksByNode& ranks) {
    const Variable* variable = ranks.variable("NCCL_IB_HCA", node);
    const NameList choice(variable ? variable->value : "", NameList::Syntax::Nccl);
    std::vector<double> rates;
    for (const AdapterPort& port : node.adapter_ports) {
        if (port.active() && choice.chooses(port.adapter, port.port))
            rates.push_back(port.gigabits * kBytesPerGigabit);
    }
    std::ranges::sort(rates, std::greater());
    // Each rank sends through one adapter.
    rates.resize(std::min(rates.size(), ranks.on(node).size()));
    const double rate = std::accumulate(rates.begin(), rates.end(), 0.0);
    return rate > 0 ? std::optional(rate) : std::nullopt;
}

NameList interfaces_chosen(const NodeFacts& node, const RanksByNode& ranks) {
    if (const Variable* nccl = ranks.variable("NCCL_SOCKET_IFNAME", node)) {
        return {nccl->value, NameList::Syntax::Nccl};
    }
    const Variable* mpi = ranks.variable("OMPI_MCA_btl_tcp_if_include", node);
    return {mpi ? mpi->value : "", NameList::Syntax::WholeNames};
}

std::optional<double> interfaces_rate(const NodeFacts& node, const RanksByNode& ranks) {
    const NameList choice = interfaces_chosen(node, ranks);
    double sum = 0, fastest = 0;
    for (const Interface& one : node.interfaces) {
        if (!one.leaves_the_machine || one.state == "down" || !one.megabits || !choice.chooses(one.name))
            continue;
        sum += *one.megabits * kBytesPerMegabit;
        fastest = std::max(fastest, *one.megabits * kBytesPerMegabit);
    }
    const double rate = choice.entries().empty() ? fastest : sum;
    return rate > 0 ? std::optional(rate) : std::nullopt;
}

/// Reports all nodes below the expected share of line_rate() in one finding. The nodes are marked as bad only
/// if the finding is a FAIL and does not cover all nodes.
void compare_with_lines(const Speeds& speeds, const Cluster& cluster, std::vector<Finding>& findings) {
    if (num_machines(cluster) < cluster.nodes.size()) return;  // no fabric connects nodes on one machine
    const RanksByNode ranks(cluster);
    std::vector<std::string> below;
    double lowest = kMinLineShare;
    for (size_t i = 0; i < speeds.nodes.size(); ++i) {
        const std::optional<double> rate = line_rate(cluster.nodes[i], ranks);
        if (!rate || speeds.nodes[i] > kMinLineShare * *rate) continue;
        below.push_back(cluster.nodes[i].name);
        lowest = std::min(lowest, speeds.nodes[i] / *rate);
    }
    if (below.empty()) return;
    const bool indirect = speeds.between_devices && lowest < kMinDirectShare;
    const bool all = below.size() == cluster.nodes.size();
    findings.push_back(
        {indirect ? Severity::Fail : Severity::Warn, "pairs of nodes", describe_nodes(below, cluster),
         fmt::format("the slowest node sends at {:.0f} % of its line rate", 100 * lowest),
         indirect
             ? "data does not take these adapters, or not directly from the GPU: check the transport that "
               "nccl-bench prints, GPUDirect (nvidia-peermem), and the variables that choose adapters"
             : "other settings may be faster: compare them with nccl-bench sendrecv -b 64M -e 64M on two "
               "nodes",
         indirect && !all ? below : std::vector<std::string>{}});
}

/// Reports all groups within nodes that are below the expected share of NVLink's rate in one finding.
void compare_links(const OperationSpeed& speed, const Cluster& cluster, std::vector<Finding>& findings) {
    if (speed.operation.kind.bytes < kMinBytes) return;
    std::vector<int> slow;
    double slowest = 0, wanted = 0;
    for (size_t i = 0; i < speed.bus_bandwidths.size(); ++i) {
        const std::vector<int>& ranks = speed.operation.groups[i];
        const auto nodes = nodes_of(ranks, cluster);
        const auto node = std::ranges::find(cluster.nodes, nodes[0], &NodeFacts::name);
        if (nodes.size() > 1 || node->gpus.empty()) continue;
        const std::optional<double> rate = nvlink_rate(node->gpus[0].name);
        if (!rate || speed.bus_bandwidths[i] > kMinNvlinkShare * *rate) continue;
        slowest = slow.empty() ? speed.bus_bandwidths[i] : std::min(slowest, speed.bus_bandwidths[i]);
        wanted = *rate;
        slow.insert(slow.end(), ranks.begin(), ranks.end());
    }
    if (slow.empty()) return;
    std::ranges::sort(slow);
    findings.push_back({Severity::Warn, name_of(speed.operation), describe_ranks(slow, cluster),
                        fmt::format("bus bandwidth is only {:.3g} GB/s, but NVLink carries {:.3g} GB/s",
                                    slowest / 1e9, wanted / 1e9),
                        "check nvidia-smi topo -m, nvidia-smi nvlink -s and the fabric manager's service; "
                        "unset NCCL_P2P_DISABLE and NCCL_P2P_LEVEL"});
}

}  // namespace

std::vector<Finding> find_wrong_results(const Speeds& speeds, const Cluster& cluster) {
    std::vector<Finding> findings;
    for (const OperationSpeed& speed : speeds.operations) {
        std::vector<int> ranks;
        int64_t count = 0;
        for (size_t rank = 0; rank < speed.num_wrong.size(); ++rank) {
            count += speed.num_wrong[rank];
            if (speed.num_wrong[rank] > 0) ranks.push_back(static_cast<int>(rank));
        }
        if (count == 0) continue;
        findings.push_back(
            {Severity::Fail, "result of " + name_of(speed.operation), describe_ranks(ranks, cluster),
             fmt::format("{} elements of the result are wrong", count),
             "a device, link or library of these ranks or of their groups corrupts data: run nccl-bench on "
             "half of the nodes, then on half of those, to find it"});
    }
    append(find_wrong_pairs(speeds, cluster), findings);
    return findings;
}

std::vector<Finding> compare_speeds(const Speeds& speeds, const Cluster& cluster) {
    std::vector<Finding> findings;
    compare_products(speeds, cluster, findings);
    for (const OperationSpeed& speed : speeds.operations) compare_groups(speed, cluster, findings);
    compare_nodes(speeds, cluster, findings);
    compare_rails(speeds, cluster, findings);
    return findings;
}

std::vector<Finding> compare_ranks(const RankRates& rates, const Cluster& cluster) {
    std::vector<Finding> findings;
    for (const Outlier& one : slow_outliers(rates.rates)) {
        const std::vector<int> rank = {rates.ranks[one.index]};
        findings.push_back({severity_of(one), rates.check, describe_ranks(rank, cluster),
                            fmt::format("{:.3g} {}, {}", rates.rates[one.index] / rates.unit, rates.unit_name,
                                        compared_with(one, rates.others)),
                            rates.remedy, at_fault(one, nodes_of(rank, cluster))});
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

std::optional<double> line_rate(const NodeFacts& node, const RanksByNode& ranks) {
    const auto adapters = adapters_rate(node, ranks);
    return adapters ? adapters : interfaces_rate(node, ranks);
}

std::optional<double> nvlink_rate(std::string_view gpu) {
    constexpr std::string_view kMaker = "NVIDIA ";
    if (gpu.starts_with(kMaker)) gpu.remove_prefix(kMaker.size());
    for (const char* without : {"PCIe", "NVL", "MIG"}) {
        if (gpu.find(without) != gpu.npos) return std::nullopt;
    }
    for (const NvlinkRate& one : kNvlinkRates) {
        const std::string_view rest = gpu.substr(std::min(one.name.size(), gpu.size()));
        if (gpu.starts_with(one.name) && (rest.empty() || rest[0] == ' ' || rest[0] == '-')) return one.bytes;
    }
    return std::nullopt;
}

std::vector<Finding> compare_with_fabric(const Speeds& speeds, const Cluster& cluster) {
    std::vector<Finding> findings;
    compare_with_lines(speeds, cluster, findings);
    if (!speeds.between_devices) return findings;
    for (const OperationSpeed& speed : speeds.operations) compare_links(speed, cluster, findings);
    return findings;
}

}  // namespace argosy::preflight
