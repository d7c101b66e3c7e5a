// Checks what devices did under stress (stress.cpp): whether they compute correctly, and at which rates.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "observe/peak_flops.h"
#include "preflight/compare_speeds.h"
#include "preflight/diagnose.h"
#include "preflight/finding.h"

namespace argosy::preflight {
namespace {

constexpr const char* kReplace =
    "leave the node out; test the device with its maker's diagnosis (dcgmi diag)";

/// The ranks whose devices were under stress, by the kind of their device.
std::map<std::string, std::vector<const RankFacts*>> ranks_by_kind(const Cluster& cluster) {
    std::map<std::string, std::vector<const RankFacts*>> kinds;
    for (const RankFacts& rank : cluster.ranks) {
        if (rank.stress) kinds[rank.stress->kind()].push_back(&rank);
    }
    return kinds;
}

Finding wrong_products(const RankFacts& rank, const std::string& difference, const Cluster& cluster) {
    return {Severity::Fail,
            kCheckNames.product_results,
            describe_ranks({rank.rank}, cluster),
            fmt::format("{} computes wrongly (silent corruption): {}", rank.stress->name(), difference),
            kReplace,
            {rank.node}};
}

/// Compares the results of ranks with devices of one kind. If no hash has a majority, it is unknown which
/// devices are wrong.
void compare_hashes(const std::vector<const RankFacts*>& ranks, const Cluster& cluster,
                    std::vector<Finding>& findings) {
    std::map<std::string, std::vector<int>> ranks_by_hash;
    for (const RankFacts* rank : ranks) ranks_by_hash[rank->stress->hash].push_back(rank->rank);
    if (ranks_by_hash.size() < 2) return;
    const auto& [usual, agreeing] =
        *std::ranges::max_element(ranks_by_hash, {}, [](const auto& entry) { return entry.second.size(); });
    const std::string kind = ranks[0]->stress->kind();
    if (2 * agreeing.size() <= ranks.size()) {
        std::vector<int> numbers;
        for (const RankFacts* rank : ranks) numbers.push_back(rank->rank);
        findings.push_back({Severity::Fail, kCheckNames.product_results, describe_ranks(numbers, cluster),
                            fmt::format("devices of one kind ({}) have {} different results of one product, "
                                        "and no result has a majority: some compute wrongly",
                                        kind, ranks_by_hash.size()),
                            "run the pre-flight with more of these nodes, so that a majority shows which "
                            "devices are wrong"});
        return;
    }
    for (const RankFacts* rank : ranks) {
        // A device that contradicts itself has a finding of check_products() already.
        if (rank->stress->hash == usual || rank->stress->num_different > 0) continue;
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
    if (!gpu || !gpu->max_pcie_lanes || !gpu->max_pcie_generation) return 0;
    const int64_t generation = *gpu->max_pcie_generation;
    if (generation < 1 || generation >= std::ssize(kLaneRates)) return 0;
    return kLaneRates[generation] * static_cast<double>(*gpu->max_pcie_lanes);
}

/// A rate of a rank's device, and the rate that the hardware should have. 0: unknown.
struct Rate {
    const RankFacts* rank;
    double measured, nominal;
};
/// A kind of rate, and the share of its nominal value below which it gets a finding.
struct RateLimit {
    const char* check;
    double Thresholds::*min_share;
    double unit;
    const char *unit_name, *nominal_name, *remedy;
};
constexpr const char* kLinkRemedy =
    "reseat the GPU; check its link while it copies (nvidia-smi -q), and the host's PCIe settings";
constexpr RateLimit kProductLimit = {
    kCheckNames.sustained_products,
    &Thresholds::peak,
    1e12,
    "TFLOP/s",
    "the datasheet's",
    "check the device's clocks, heat and power limit under load (nvidia-smi -q -d "
    "PERFORMANCE,POWER,CLOCK); or leave the node out"};
constexpr RateLimit kToDeviceLimit = {
    kCheckNames.copies_to_device, &Thresholds::pcie, 1e9, "GB/s", "its PCIe link's", kLinkRemedy};
constexpr RateLimit kToHostLimit = {kCheckNames.copies_to_host, &Thresholds::pcie, 1e9, "GB/s",
                                    "its PCIe link's",          kLinkRemedy};

/// One WARN for all ranks below the limit. Never a FAIL, because a site may have chosen a lower power limit.
void compare_with_limit(const RateLimit& limit, const std::vector<Rate>& rates, const Cluster& cluster,
                        std::vector<Finding>& findings) {
    std::vector<int> below;
    const Rate* slowest = nullptr;
    const double min_share = cluster.thresholds.*limit.min_share;
    const auto share = [](const Rate& rate) { return rate.measured / rate.nominal; };
    for (const Rate& rate : rates) {
        if (rate.measured <= 0 || rate.nominal <= 0 || share(rate) >= min_share) continue;
        below.push_back(rate.rank->rank);
        if (!slowest || share(rate) < share(*slowest)) slowest = &rate;
    }
    if (below.empty()) return;
    findings.push_back({Severity::Warn, limit.check, describe_ranks(below, cluster),
                        fmt::format("{} of rank {} reaches {:.3g} {}, {:.0f} % of {} {:.3g}, below {:.0f} %",
                                    slowest->rank->stress->name(), slowest->rank->rank,
                                    slowest->measured / limit.unit, limit.unit_name, 100 * share(*slowest),
                                    limit.nominal_name, slowest->nominal / limit.unit, 100 * min_share),
                        limit.remedy});
}

/// Compares the rates of devices of one kind with each other, with findings of `max_severity` at most, and
/// with the limit.
void compare_rates(const RateLimit& limit, const std::vector<Rate>& rates, const Cluster& cluster,
                   Severity max_severity, std::vector<Finding>& findings) {
    RankRates among{.check = limit.check,
                    .max_severity = max_severity,
                    .unit = limit.unit,
                    .unit_name = limit.unit_name,
                    .others = "the other devices of its kind",
                    .remedy = limit.remedy};
    for (const Rate& rate : rates) {
        among.ranks.push_back(rate.rank->rank);
        among.rates.push_back(rate.measured);
    }
    append(compare_ranks(among, cluster), findings);
    compare_with_limit(limit, rates, cluster, findings);
}

}  // namespace

std::vector<Finding> check_products(const Cluster& cluster) {
    std::vector<Finding> findings;
    for (const RankFacts& rank : cluster.ranks) {
        if (!rank.stress || rank.stress->num_different == 0) continue;
        findings.push_back(wrong_products(rank,
                                          fmt::format("{} of {} results of one product differ from the first",
                                                      rank.stress->num_different, rank.stress->num_products),
                                          cluster));
    }
    for (const auto& [kind, ranks] : ranks_by_kind(cluster)) compare_hashes(ranks, cluster, findings);
    return findings;
}

std::vector<Finding> compare_stress(const Cluster& cluster, at::ScalarType type) {
    std::map<std::string, const NodeFacts*> node_of;
    for (const NodeFacts& node : cluster.nodes) node_of[node.name] = &node;
    std::vector<Finding> findings;
    for (const auto& [kind, ranks] : ranks_by_kind(cluster)) {
        if (ranks[0]->stress->bus_id.empty()) continue;
        const double peak = observe::datasheet_peak(ranks[0]->stress->device, type).flops_per_second;
        std::vector<Rate> products, to_device, to_host;
        for (const RankFacts* rank : ranks) {
            const StressResult& stress = *rank->stress;
            const double link = link_rate(node_of[rank->node]->gpu_at(stress.bus_id));
            products.push_back({rank, stress.flops_per_second, peak});
            to_device.push_back({rank, stress.bytes_to_device, link});
            to_host.push_back({rank, stress.bytes_to_host, link});
        }
        compare_rates(kProductLimit, products, cluster, Severity::Fail, findings);
        compare_rates(kToDeviceLimit, to_device, cluster, Severity::Warn, findings);
        compare_rates(kToHostLimit, to_host, cluster, Severity::Warn, findings);
    }
    return findings;
}

}  // namespace argosy::preflight
