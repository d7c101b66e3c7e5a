// Compares the GPUs of nodes: whether they are as many, of one kind, and as fast under stress.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/median.h"
#include "preflight/diagnose.h"
#include "preflight/finding.h"

namespace argosy::preflight {
namespace {

/// A property that all GPUs should have in common.
struct Property {
    const char* check;
    std::string (*value)(const Gpu&);
    const char* remedy;
};
constexpr Property kProperties[] = {
    {kCheckNames.gpu_models, [](const Gpu& gpu) { return gpu.name; },
     "ask for nodes of one kind, because all ranks wait for the slowest GPU"},
    {kCheckNames.gpu_drivers, [](const Gpu& gpu) { return gpu.driver; },
     "install the same driver on all nodes"},
    {kCheckNames.gpu_pcie_generation,
     [](const Gpu& gpu) { return fmt::format("{}", gpu.max_pcie_generation.value_or(0)); },
     "check the slot and the firmware's settings"},
};

}  // namespace

std::vector<Finding> check_num_gpus(const Cluster& cluster) {
    NodeFindings found(kCheckNames.num_gpus, Blame::Always);
    const auto is_known = [](const NodeFacts& node) { return !node.gpus.empty() || !node.gpus_out_of_time; };
    std::vector<double> counts;
    for (const NodeFacts& node : cluster.nodes) {
        if (is_known(node)) counts.push_back(static_cast<double>(node.gpus.size()));
    }
    const Medians usual = both_medians(counts);
    for (const NodeFacts& node : cluster.nodes) {
        const auto count = static_cast<double>(node.gpus.size());
        if (!is_known(node) || count == usual.upper) continue;
        const bool fewer = count < usual.upper;
        found.add(node.name, {fewer ? severity_below(usual, count) : Severity::Warn,
                              fmt::format("{}, but {} on other nodes", count, usual.upper),
                              fewer ? "leave the node out; check nvidia-smi and the kernel's log there"
                                    : "ask for nodes of one kind"});
    }
    return found.findings(cluster);
}

std::vector<Finding> check_gpus_alike(const Cluster& cluster) {
    std::vector<Finding> findings;
    for (const Property& property : kProperties) {
        std::map<std::string, int> gpus_by_value;
        for (const NodeFacts& node : cluster.nodes) {
            for (const Gpu& gpu : node.gpus) ++gpus_by_value[property.value(gpu)];
        }
        if (gpus_by_value.size() < 2) continue;
        const auto usual =
            std::ranges::max_element(gpus_by_value, {}, [](const auto& entry) { return entry.second; });
        NodeFindings found(property.check);
        for (const NodeFacts& node : cluster.nodes) {
            for (const Gpu& gpu : node.gpus) {
                const std::string value = property.value(gpu);
                if (value == usual->first) continue;
                found.add(node.name,
                          {Severity::Warn, fmt::format("'{}', but most GPUs have '{}'", value, usual->first),
                           property.remedy});
            }
        }
        append(found.findings(cluster), findings);
    }
    return findings;
}

/// GPUs of one model that multiply at the same power limit differ by several per cent in their clocks,
/// because chips and their cooling do. A lower power limit, or a lock of the clocks that someone has left
/// there, takes more.
std::vector<Finding> check_gpu_clocks_alike(const Cluster& cluster) {
    const double min_share = cluster.thresholds.clocks;
    const RanksByNode ranks(cluster);
    std::map<std::string, std::vector<double>> clocks;  // by model; others' GPUs may rest
    const auto for_each_used = [&](const auto& visit) {
        for (const NodeFacts& node : cluster.nodes) {
            const UsedGpus used(node, ranks);
            for (size_t i = 0; i < node.gpus_under_stress.size(); ++i) {
                const Gpu& gpu = node.gpus_under_stress[i];
                if (gpu.sm_megahertz && used.has(gpu)) visit(node, i, gpu);
            }
        }
    };
    for_each_used([&](const NodeFacts&, size_t, const Gpu& gpu) {
        clocks[gpu.name].push_back(static_cast<double>(*gpu.sm_megahertz));
    });
    std::map<std::string, double> usual;
    for (const auto& [name, values] : clocks) usual[name] = lower_median(values);
    NodeFindings found(kCheckNames.gpu_clocks_under_stress);
    for_each_used([&](const NodeFacts& node, size_t i, const Gpu& gpu) {
        const double share = static_cast<double>(*gpu.sm_megahertz) / usual.at(gpu.name);
        if (!(share < min_share)) return;
        const double tenths = std::ceil(10 * share);  // so that similar GPUs share a finding
        found.add(
            node.name,
            {Severity::Warn,
             fmt::format(
                 "GPU {}: below {:.0f} % of the {:.0f} MHz of most GPUs of its model (at most {} MHz)", i,
                 std::min(10 * tenths, 100 * min_share), usual.at(gpu.name),
                 gpu.max_sm_megahertz.value_or(0)),
             "compare nvidia-smi -q -d CLOCK,POWER,PERFORMANCE with another node's: a power limit, or clocks "
             "locked with -lgc (nvidia-smi -rgc unlocks them)"});
    });
    return found.findings(cluster);
}

}  // namespace argosy::preflight
