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
    const double min_share = cluster.thresholds.peak;
    const auto share = [&](const RankFacts* rank) { return rank->stress->flops_per_second / peak; };
    for (const RankFacts* rank : ranks) {
        if (rank->stress->flops_per_second <= 0 || peak <= 0 || share(rank) >= min_share) continue;
        below.push_back(rank->rank);
        if (!slowest || share(rank) < share(slowest)) slowest = rank;
    }
    if (below.empty()) return;
    findings.push_back(
        {Severity::Warn, kCheckNames.sustained_products, describe_ranks(below, cluster),
         fmt::format(
             "{} of rank {} reaches {:.3g} TFLOP/s, {:.0f} % of the datasheet's {:.3g}, below {:.0f} %",
             slowest->stress->name(), slowest->rank, slowest->stress->flops_per_second / kTeraFlops,
             100 * share(slowest), peak / kTeraFlops, 100 * min_share),
         kSustainedRemedy});
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
    std::vector<Finding> findings;
    for (const auto& [kind, ranks] : ranks_by_kind(cluster)) {
        if (ranks[0]->stress->bus_id.empty()) continue;
        RankRates among{.check = kCheckNames.sustained_products, .remedy = kSustainedRemedy};
        for (const RankFacts* rank : ranks) {
            among.ranks.push_back(rank->rank);
            among.rates.push_back(rank->stress->flops_per_second);
        }
        append(compare_ranks(among, cluster), findings);
        const double peak = observe::datasheet_peak(ranks[0]->stress->device, type).flops_per_second;
        compare_with_peak(ranks, peak, cluster, findings);
    }
    return findings;
}

}  // namespace argosy::preflight
