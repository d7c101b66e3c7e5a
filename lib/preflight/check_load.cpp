// Checks what devices did under load (load.cpp): whether they compute correctly, and at which rates.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "observe/peak_flops.h"
#include "preflight/compare_speeds.h"
#include "preflight/diagnose.h"
#include "preflight/finding.h"

namespace argosy::preflight {
namespace {

constexpr const char* kReplace =
    "leave the node out; test the device with its maker's diagnosis (dcgmi diag)";

/// The ranks that have a load, by the kind of their device.
std::map<std::string, std::vector<const RankFacts*>> ranks_by_kind(const Cluster& cluster) {
    std::map<std::string, std::vector<const RankFacts*>> kinds;
    for (const RankFacts& rank : cluster.ranks) {
        if (rank.load) kinds[rank.load->kind()].push_back(&rank);
    }
    return kinds;
}

Finding wrong_products(const RankFacts& rank, const std::string& difference, const Cluster& cluster) {
    return {Severity::Fail,
            "results of matrix products",
            describe_ranks({rank.rank}, cluster),
            fmt::format("{} computes wrongly (silent corruption): {}", rank.load->name(), difference),
            kReplace,
            {rank.node}};
}

/// Compares the hashes of ranks with devices of one kind. If no hash has a majority, the wrong devices are
/// unknown.
void compare_hashes(const std::vector<const RankFacts*>& ranks, const Cluster& cluster,
                    std::vector<Finding>& findings) {
    std::map<std::string, std::vector<int>> ranks_by_hash;
    for (const RankFacts* rank : ranks) ranks_by_hash[rank->load->hash].push_back(rank->rank);
    if (ranks_by_hash.size() < 2) return;
    const auto& [usual, agreeing] =
        *std::ranges::max_element(ranks_by_hash, {}, [](const auto& entry) { return entry.second.size(); });
    const std::string kind = ranks[0]->load->kind();
    if (2 * agreeing.size() <= ranks.size()) {
        std::vector<int> numbers;
        for (const RankFacts* rank : ranks) numbers.push_back(rank->rank);
        findings.push_back({Severity::Fail, "results of matrix products", describe_ranks(numbers, cluster),
                            fmt::format("devices of one kind ({}) have {} different results of one product, "
                                        "and no result has a majority: some compute wrongly",
                                        kind, ranks_by_hash.size()),
                            "run the pre-flight with more of these nodes, so that a majority shows which "
                            "devices are wrong"});
        return;
    }
    for (const RankFacts* rank : ranks) {
        // The other finding on a device that contradicts itself says enough.
        if (rank->load->hash == usual || rank->load->num_different > 0) continue;
        findings.push_back(wrong_products(*rank,
                                          fmt::format("{} of {} devices of its kind ({}) have another result",
                                                      agreeing.size(), ranks.size(), kind),
                                          cluster));
    }
}

/// Bytes per second of a PCIe lane by generation, after its encoding.
constexpr double kLaneRates[] = {0, 0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9};

/// Bytes per second of the fastest PCIe link that a GPU and its slot can have. 0: unknown.
double link_rate(const Gpu* gpu) {
    if (!gpu || !gpu->most_pcie_lanes || !gpu->most_pcie_generation) return 0;
    const int64_t generation = *gpu->most_pcie_generation;
    if (generation < 1 || generation >= std::ssize(kLaneRates)) return 0;
    return kLaneRates[generation] * static_cast<double>(*gpu->most_pcie_lanes);
}

/// A rate of a rank's device, and the rate that the hardware should have. 0: unknown.
struct Rate {
    const RankFacts* rank;
    double measured, nominal;
};
struct Bar {
    const char* check;
    double Thresholds::*share;  // of the nominal rate
    double unit;
    const char *unit_name, *nominal_name, *remedy;
};
constexpr const char* kLinkRemedy =
    "reseat the GPU; check its link while it copies (nvidia-smi -q), and the host's PCIe settings";
constexpr Bar kPeakBar = {"sustained matrix products",
                          &Thresholds::peak,
                          1e12,
                          "TFLOP/s",
                          "the datasheet's",
                          "check the device's clocks, heat and power limit under load (nvidia-smi -q -d "
                          "PERFORMANCE,POWER,CLOCK); or leave the node out"};
constexpr Bar kToDeviceBar = {"copies to the device", &Thresholds::pcie, 1e9, "GB/s",
                              "its PCIe link's",      kLinkRemedy};
constexpr Bar kToHostBar = {"copies to the host", &Thresholds::pcie, 1e9, "GB/s",
                            "its PCIe link's",    kLinkRemedy};

/// One WARN for all ranks below the bar: it may be so by design, as with a lower power limit.
void compare_with_bar(const Bar& bar, const std::vector<Rate>& rates, const Cluster& cluster,
                      std::vector<Finding>& findings) {
    std::vector<int> below;
    const Rate* slowest = nullptr;
    const double min_share = cluster.thresholds.*bar.share;
    const auto share = [](const Rate& rate) { return rate.measured / rate.nominal; };
    for (const Rate& rate : rates) {
        if (rate.measured <= 0 || rate.nominal <= 0 || share(rate) >= min_share) continue;
        below.push_back(rate.rank->rank);
        if (!slowest || share(rate) < share(*slowest)) slowest = &rate;
    }
    if (below.empty()) return;
    findings.push_back({Severity::Warn, bar.check, describe_ranks(below, cluster),
                        fmt::format("{} of rank {} reaches {:.3g} {}, {:.0f} % of {} {:.3g}, below {:.0f} %",
                                    slowest->rank->load->name(), slowest->rank->rank,
                                    slowest->measured / bar.unit, bar.unit_name, 100 * share(*slowest),
                                    bar.nominal_name, slowest->nominal / bar.unit, 100 * min_share),
                        bar.remedy});
}

/// Compares the rates of devices of one kind with each other, with findings of this level at most, and with
/// the bar.
void compare_rates(const Bar& bar, const std::vector<Rate>& rates, const Cluster& cluster, Severity most,
                   std::vector<Finding>& findings) {
    RankRates among{.check = bar.check,
                    .most = most,
                    .unit = bar.unit,
                    .unit_name = bar.unit_name,
                    .others = "the other devices of its kind",
                    .remedy = bar.remedy};
    for (const Rate& rate : rates) {
        among.ranks.push_back(rate.rank->rank);
        among.rates.push_back(rate.measured);
    }
    append(compare_ranks(among, cluster), findings);
    compare_with_bar(bar, rates, cluster, findings);
}

bool grew(const std::optional<int64_t>& before, const std::optional<int64_t>& after) {
    return before && after && *after > *before;
}

}  // namespace

std::vector<Finding> check_products(const Cluster& cluster) {
    std::vector<Finding> findings;
    for (const RankFacts& rank : cluster.ranks) {
        if (!rank.load || rank.load->num_different == 0) continue;
        findings.push_back(wrong_products(rank,
                                          fmt::format("{} of {} results of one product differ from the first",
                                                      rank.load->num_different, rank.load->num_products),
                                          cluster));
    }
    for (const auto& [kind, ranks] : ranks_by_kind(cluster)) compare_hashes(ranks, cluster, findings);
    return findings;
}

/// Checks the GPUs that ranks use. The links of other GPUs may run at a lower generation, because they rest.
std::vector<Finding> check_links_under_load(const Cluster& cluster) {
    NodeFindings found("GPU PCIe link under load", Blame::Minority);
    const RanksByNode ranks(cluster);
    for (const NodeFacts& node : cluster.nodes) {
        const UsedGpus used(node, ranks);
        for (size_t i = 0; i < node.gpus_under_load.size(); ++i) {
            const Gpu& gpu = node.gpus_under_load[i];
            const bool slow = gpu.pcie_generation && gpu.pcie_generation < gpu.most_pcie_generation;
            if (!slow || !used.has(gpu)) continue;
            found.add(node.name, {Severity::Fail,
                                  fmt::format("GPU {}: uses generation {} of {} of PCIe", i,
                                              *gpu.pcie_generation, *gpu.most_pcie_generation),
                                  "leave the node out; reseat the GPU"});
        }
    }
    return found.findings(cluster);
}

std::vector<Finding> check_gpu_counters(const Cluster& cluster) {
    NodeFindings memory("GPU memory errors under load", Blame::Always);
    NodeFindings links("GPU PCIe link under load");
    for (const NodeFacts& node : cluster.nodes) {
        for (size_t i = 0; i < node.gpus.size(); ++i) {
            const Gpu& before = node.gpus[i];
            const auto after = std::ranges::find(node.gpus_after, before.bus_id, &Gpu::bus_id);
            if (after == node.gpus_after.end()) continue;
            if (grew(before.uncorrected_errors, after->uncorrected_errors)) {
                memory.add(node.name,
                           {Severity::Fail,
                            fmt::format("GPU {}: uncorrected memory errors during the pre-flight", i),
                            "leave the node out; reset the GPU"});
            } else if (grew(before.corrected_errors, after->corrected_errors)) {
                memory.add(
                    node.name,
                    {Severity::Warn, fmt::format("GPU {}: corrected memory errors during the pre-flight", i),
                     "if their number grows in the next runs, have the GPU replaced"});
            }
            if (grew(before.pcie_replays, after->pcie_replays)) {
                links.add(node.name,
                          {Severity::Warn, fmt::format("GPU {}: packets were sent again over PCIe", i),
                           "reseat the GPU; check its slot and riser"});
            }
        }
    }
    std::vector<Finding> findings = memory.findings(cluster);
    append(links.findings(cluster), findings);
    return findings;
}

std::vector<Finding> compare_loads(const Cluster& cluster, at::ScalarType type) {
    std::map<std::string, const NodeFacts*> node_of;
    for (const NodeFacts& node : cluster.nodes) node_of[node.name] = &node;
    std::vector<Finding> findings;
    for (const auto& [kind, ranks] : ranks_by_kind(cluster)) {
        if (ranks[0]->load->bus_id.empty()) continue;
        const double peak = observe::datasheet_peak(ranks[0]->load->device, type).flops_per_second;
        std::vector<Rate> products, to_device, to_host;
        for (const RankFacts* rank : ranks) {
            const DeviceLoad& load = *rank->load;
            const double link = link_rate(node_of[rank->node]->gpu_at(load.bus_id));
            products.push_back({rank, load.flops_per_second, peak});
            to_device.push_back({rank, load.bytes_to_device, link});
            to_host.push_back({rank, load.bytes_to_host, link});
        }
        compare_rates(kPeakBar, products, cluster, Severity::Fail, findings);
        compare_rates(kToDeviceBar, to_device, cluster, Severity::Warn, findings);
        compare_rates(kToHostBar, to_host, cluster, Severity::Warn, findings);
    }
    return findings;
}

}  // namespace argosy::preflight
