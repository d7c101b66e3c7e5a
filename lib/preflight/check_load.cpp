// Checks what devices did under load (load.cpp): whether they compute correctly, and at which rates.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "observe/peak_flops.h"
#include "preflight/compare_speeds.h"
#include "preflight/diagnose.h"
#include "preflight/finding.h"

namespace argosy::preflight {
namespace {

constexpr const char* kReplace =
    "leave the node out; test the device with its maker's diagnosis (dcgmi diag)";

/// The ranks that have a load, by the kind of their device.
std::map<std::pair<std::string, std::string>, std::vector<const RankFacts*>> ranks_by_kind(
    const Cluster& cluster) {
    std::map<std::pair<std::string, std::string>, std::vector<const RankFacts*>> kinds;
    for (const RankFacts& rank : cluster.ranks) {
        if (rank.load) kinds[{rank.load->device, rank.load->library}].push_back(&rank);
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
    const DeviceLoad& load = *ranks[0]->load;
    const std::string kind = fmt::format("{}, {}", load.device, load.library);
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

/// Each kind of device with a known peak must reach this share of it. An H200 (700 W) reaches 680 of 989
/// TFLOP/s in bf16 at its power limit, 69 %. A GPU at half the datasheet's peak is held back.
constexpr double kMinPeakShare = 0.5;

/// One finding for all ranks below the share of the peak. More than half of several nodes may be so by
/// design, as with a lower power limit.
void compare_with_peak(const std::vector<const RankFacts*>& ranks, at::ScalarType type,
                       const Cluster& cluster, std::vector<Finding>& findings) {
    const auto peak = observe::datasheet_peak(ranks[0]->load->device, type);
    if (!peak.known()) return;
    std::vector<int> below;
    const RankFacts* slowest = nullptr;
    for (const RankFacts* rank : ranks) {
        const double rate = rank->load->flops_per_second;
        if (rate >= kMinPeakShare * peak.flops_per_second) continue;
        below.push_back(rank->rank);
        if (!slowest || rate < slowest->load->flops_per_second) slowest = rank;
    }
    if (below.empty()) return;
    const std::vector<std::string> nodes = nodes_of(below, cluster);
    const bool mostly = nodes.size() > 1 && 2 * nodes.size() > cluster.nodes.size();
    findings.push_back(
        {mostly ? Severity::Warn : Severity::Fail, "sustained matrix products",
         describe_ranks(below, cluster),
         fmt::format(
             "{} of rank {} reaches {:.3g} TFLOP/s, {:.0f} % of the datasheet's {:.4g}, below {:.0f} %",
             slowest->load->name(), slowest->rank, slowest->load->flops_per_second / 1e12,
             100 * slowest->load->flops_per_second / peak.flops_per_second, peak.flops_per_second / 1e12,
             100 * kMinPeakShare),
         "check clocks, heat and the power limit (nvidia-smi -q -d PERFORMANCE,POWER,CLOCK)",
         mostly ? std::vector<std::string>{} : nodes});
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

std::vector<Finding> check_gpu_counters(const Cluster& cluster) {
    NodeFindings found("GPU memory errors under load", Blame::Always);
    for (const NodeFacts& node : cluster.nodes) {
        for (size_t i = 0; i < node.gpus.size(); ++i) {
            const auto after = std::ranges::find(node.gpus_after, node.gpus[i].bus_id, &Gpu::bus_id);
            if (after == node.gpus_after.end()) continue;
            if (grew(node.gpus[i].uncorrected_errors, after->uncorrected_errors)) {
                found.add(node.name,
                          {Severity::Fail,
                           fmt::format("GPU {}: uncorrected memory errors during the pre-flight", i),
                           "leave the node out; reset the GPU"});
            } else if (grew(node.gpus[i].corrected_errors, after->corrected_errors)) {
                found.add(node.name, {Severity::Warn,
                                      fmt::format("GPU {}: corrected memory errors during the pre-flight", i),
                                      "if their number grows in the next runs, have the GPU replaced"});
            }
        }
    }
    return found.findings(cluster);
}

std::vector<Finding> compare_loads(const Cluster& cluster, at::ScalarType type) {
    std::vector<Finding> findings;
    for (const auto& [kind, ranks] : ranks_by_kind(cluster)) {
        RankRates products{.check = "sustained matrix products",
                           .others = "the other devices of its kind",
                           .remedy =
                               "check this device's heat and power under load (nvidia-smi -q -d "
                               "PERFORMANCE,POWER,TEMPERATURE); or leave the node out"};
        for (const RankFacts* rank : ranks) {
            products.ranks.push_back(rank->rank);
            products.rates.push_back(rank->load->flops_per_second);
        }
        append(compare_ranks(products, cluster), findings);
        compare_with_peak(ranks, type, cluster, findings);
    }
    return findings;
}

}  // namespace argosy::preflight
