// Compares measured speeds with what the hardware can do: adapters and interfaces between nodes, NVLink
// within, and the peak of a GPU's datasheet.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string_view>
#include <unordered_map>

#include "observe/peak_flops.h"
#include "preflight/diagnose.h"
#include "preflight/sources.h"

namespace argosy::preflight {
namespace {

constexpr double kBytesPerGigabit = 1e9 / 8, kBytesPerMegabit = 1e6 / 8;
constexpr double kMinShareOfLine = 0.7, kMinShareOfLineOrFail = 0.25, kMinShareOfNvlink = 0.5;

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

constexpr const char* kIndirectRemedy =
    "data does not take these adapters, or not directly from the GPU: check the transport that nccl-bench "
    "prints, GPUDirect (nvidia-peermem), and the variables that choose adapters";
constexpr const char* kSlowLineRemedy =
    "other settings may be faster: compare them with nccl-bench sendrecv -b 64M -e 64M on two nodes";

/// The nodes below a share of their line rates.
struct BelowLine {
    std::vector<std::string> nodes = {};
    double lowest = 1;  // of the shares

    void add(const std::string& node, double share) {
        nodes.push_back(node);
        lowest = std::min(lowest, share);
    }
};

void report_below(const BelowLine& below, Severity severity, const char* remedy, bool bad,
                  const Cluster& cluster, std::vector<Finding>& findings) {
    if (below.nodes.empty()) return;
    findings.push_back(
        {severity, kCheckNames.line_rate, describe_nodes(below.nodes, cluster),
         fmt::format("the slowest node sends at {:.0f} % of its line rate", 100 * below.lowest), remedy,
         bad ? below.nodes : std::vector<std::string>{}});
}

/// Reports the nodes below the expected share of line_rate() in one finding, and those that are so slow that
/// data does not take the fastest path in another. The second is a FAIL that marks them as bad, or no node if
/// it covers all nodes. If it covers more than half of them, but not all, it may be so by design: WARN.
void compare_with_lines(const Speeds& speeds, const Cluster& cluster, std::vector<Finding>& findings) {
    if (num_machines(cluster) < cluster.nodes.size()) return;  // no fabric connects nodes on one machine
    const RanksByNode ranks(cluster);
    BelowLine slow, indirect;
    for (size_t i = 0; i < speeds.nodes.size(); ++i) {
        const std::optional<double> rate = line_rate(cluster.nodes[i], ranks);
        if (!rate || speeds.nodes[i] > kMinShareOfLine * *rate) continue;
        const double share = speeds.nodes[i] / *rate;
        (speeds.between_devices() && share < kMinShareOfLineOrFail ? indirect : slow)
            .add(cluster.nodes[i].name, share);
    }
    const size_t num_indirect = indirect.nodes.size(), num_nodes = cluster.nodes.size();
    const bool few = 2 * num_indirect <= num_nodes, all = num_indirect == num_nodes;
    report_below(indirect, few || all ? Severity::Fail : Severity::Warn, kIndirectRemedy, few, cluster,
                 findings);
    report_below(slow, Severity::Warn, kSlowLineRemedy, /*bad=*/false, cluster, findings);
}

/// Reports all groups within nodes that are below the expected share of NVLink's rate in one finding.
void compare_links(const OperationSpeed& speed, const Cluster& cluster, std::vector<Finding>& findings) {
    if (speed.operation.kind.bytes < kMinBytesOfLinks) return;
    std::unordered_map<std::string_view, const NodeFacts*> nodes_by_name;
    for (const NodeFacts& node : cluster.nodes) nodes_by_name[node.name] = &node;
    std::vector<int> slow;
    double slowest = 0, wanted = 0;
    for (size_t i = 0; i < speed.bus_bandwidths.size(); ++i) {
        const std::vector<int>& ranks = speed.operation.groups[i];
        const auto nodes = nodes_of(ranks, cluster);
        const NodeFacts* const node = nodes_by_name.at(nodes[0]);
        if (nodes.size() > 1 || node->gpus.empty()) continue;
        const std::optional<double> rate = nvlink_rate(node->gpus[0].name);
        if (!rate || speed.bus_bandwidths[i] > kMinShareOfNvlink * *rate) continue;
        slowest = slow.empty() ? speed.bus_bandwidths[i] : std::min(slowest, speed.bus_bandwidths[i]);
        wanted = *rate;
        slow.insert(slow.end(), ranks.begin(), ranks.end());
    }
    if (slow.empty()) return;
    std::ranges::sort(slow);
    findings.push_back({Severity::Warn, speed.operation.name(), describe_ranks(slow, cluster),
                        fmt::format("bus bandwidth is only {:.3g} GB/s, but NVLink carries {:.3g} GB/s",
                                    slowest / 1e9, wanted / 1e9),
                        "check nvidia-smi topo -m, nvidia-smi nvlink -s and the fabric manager's service; "
                        "unset NCCL_P2P_DISABLE and NCCL_P2P_LEVEL"});
}

constexpr double kTeraFlops = 1e12;
constexpr const char* kSustainedRemedy =
    "check the device's clocks, heat and power limit under load (nvidia-smi -q -d "
    "PERFORMANCE,POWER,CLOCK); or leave the node out";

/// One WARN for all ranks whose sustained products are below the limit. `peak`: of the devices, in FLOP/s; 0:
/// unknown. Never a FAIL, because a site may have chosen a lower power limit.
void compare_with_peak(const std::vector<const RankFacts*>& ranks, double peak, const Cluster& cluster,
                       std::vector<Finding>& findings) {
    std::vector<int> below;
    const RankFacts* slowest = nullptr;
    // An H200 (700 W) reaches 680 of 989 TFLOP/s in bf16 at its power limit, 69 %. A GPU at half the peak is
    // held back.
    constexpr double kMinShare = 0.5;
    const auto share = [&](const RankFacts* rank) { return rank->load->flops_per_second / peak; };
    for (const RankFacts* rank : ranks) {
        if (rank->load->flops_per_second <= 0 || peak <= 0 || share(rank) >= kMinShare) continue;
        below.push_back(rank->rank);
        if (!slowest || share(rank) < share(slowest)) slowest = rank;
    }
    if (below.empty()) return;
    findings.push_back(
        {Severity::Warn, kCheckNames.sustained_products, describe_ranks(below, cluster),
         fmt::format(
             "{} of rank {} reaches {:.3g} TFLOP/s, {:.0f} % of the datasheet's {:.3g}, below {:.0f} %",
             slowest->load->name(), slowest->rank, slowest->load->flops_per_second / kTeraFlops,
             100 * share(slowest), peak / kTeraFlops, 100 * kMinShare),
         kSustainedRemedy});
}

}  // namespace

std::vector<Finding> compare_stress(const Cluster& cluster, at::ScalarType type) {
    std::vector<Finding> findings;
    for (const auto& [kind, ranks] : ranks_by_kind(cluster)) {
        if (ranks[0]->load->bus_id.empty()) continue;
        RankRates among{.check = kCheckNames.sustained_products, .remedy = kSustainedRemedy};
        for (const RankFacts* rank : ranks) {
            among.ranks.push_back(rank->rank);
            among.rates.push_back(rank->load->flops_per_second);
        }
        append(compare_ranks(among, cluster), findings);
        const double peak = observe::datasheet_peak(ranks[0]->load->device, type).flops_per_second;
        compare_with_peak(ranks, peak, cluster, findings);
    }
    return findings;
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
    weaken_if_cut_short(speeds, findings);
    if (!speeds.between_devices()) return findings;
    for (const OperationSpeed& speed : speeds.operations) compare_links(speed, cluster, findings);
    return findings;
}

}  // namespace argosy::preflight
