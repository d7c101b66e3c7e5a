// Checks the GPUs of nodes: whether they answer, are healthy and free for this job, and are as many and of
// one kind on all nodes.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/median.h"
#include "preflight/diagnose.h"
#include "preflight/finding.h"

namespace argosy::preflight {
namespace {

// NVML's bits for the reasons why clocks are low.
constexpr int64_t kHardwareSlowdown = 0x8, kSoftwareThermal = 0x20, kHardwareThermal = 0x40,
                  kPowerBrake = 0x80;
constexpr int64_t kHeatOrPower = kSoftwareThermal | kHardwareThermal | kPowerBrake;

// Each function below describes one problem of a GPU. The text is empty if the GPU does not have the problem.

std::string heat_or_power_brake(const Gpu& gpu) {
    const int64_t reasons = gpu.throttle_reasons.value_or(0);
    if (!(reasons & kHeatOrPower)) return "";
    const bool heat = reasons & (kSoftwareThermal | kHardwareThermal);
    return fmt::format("{} lowers the clocks", heat ? "heat" : "the power brake");
}

/// Gets WARN, because drivers also report this reason alone for a moment when clocks change.
std::string slowed_by_hardware(const Gpu& gpu) {
    const int64_t reasons = gpu.throttle_reasons.value_or(0);
    if (!(reasons & kHardwareSlowdown) || reasons & kHeatOrPower) return "";
    return "the hardware lowers the clocks, maybe only for a moment";
}

/// Gets WARN, because a GPU that remaps rows has contained the errors, and then uses other memory.
std::string memory_errors(const Gpu& gpu) {
    const int64_t errors = gpu.uncorrected_errors.value_or(0);
    return errors > 0 ? fmt::format("{} uncorrected memory errors since the driver was loaded", errors) : "";
}

std::string narrow_link(const Gpu& gpu) {
    if (!gpu.pcie_lanes || !(gpu.pcie_lanes < gpu.max_pcie_lanes)) return "";
    return fmt::format("uses {} of {} PCIe lanes", *gpu.pcie_lanes, *gpu.max_pcie_lanes);
}

/// Only under stress, because the links of GPUs at rest may run at a lower generation.
std::string slow_link(const Gpu& gpu) {
    if (!gpu.pcie_generation || !(gpu.pcie_generation < gpu.max_pcie_generation)) return "";
    return fmt::format("uses generation {} of {} of PCIe", *gpu.pcie_generation, *gpu.max_pcie_generation);
}

/// The amount is rounded to GiB, so that similar nodes make one finding.
std::string memory_in_use(const Gpu& gpu) {
    return fmt::format("other processes use about {} GiB of its memory", (*gpu.used_mebibytes + 512) / 1024);
}
bool is_occupied(const Gpu& gpu) {
    constexpr double kHarmfulShare = 0.2;
    const auto used = static_cast<double>(gpu.used_mebibytes.value_or(0));
    const auto total = static_cast<double>(gpu.total_mebibytes.value_or(0));
    return total > 0 && used / total > kHarmfulShare;
}
std::string occupied(const Gpu& gpu) { return is_occupied(gpu) ? memory_in_use(gpu) : ""; }
std::string partly_occupied(const Gpu& gpu) {
    constexpr int64_t kMaxIdleMebibytes = 1024;  // the driver and a display use less
    const bool used = gpu.used_mebibytes.value_or(0) > kMaxIdleMebibytes;
    return used && !is_occupied(gpu) ? memory_in_use(gpu) : "";
}

std::string divided(const Gpu& gpu) {
    return gpu.mig_mode == "Enabled" ? "MIG divides the GPU, and its parts cannot communicate" : "";
}

struct State {
    std::string (*problem)(const Gpu&);
    Severity severity;
    const char* check;
    const char* remedy;
    Blame blame = Blame::Always;
};
constexpr const char* kReseat = "leave the node out; reseat the GPU";
constexpr State kStates[] = {
    {heat_or_power_brake, Severity::Fail, kCheckNames.gpu_clocks,
     "leave the node out; check its cooling and power", Blame::Minority},
    {slowed_by_hardware, Severity::Warn, kCheckNames.gpu_clocks,
     "check again with nvidia-smi -q -d PERFORMANCE"},
    {memory_errors, Severity::Warn, kCheckNames.gpu_memory_errors,
     "if their number grows, have the GPU replaced"},
    {narrow_link, Severity::Fail, kCheckNames.gpu_pcie, kReseat, Blame::Minority},
    {occupied, Severity::Fail, kCheckNames.gpu_memory_in_use,
     "leave the node out; end the processes left there"},
    {partly_occupied, Severity::Warn, kCheckNames.gpu_memory_in_use,
     "see in nvidia-smi whose processes they are"},
    {divided, Severity::Warn, kCheckNames.mig, "run nvidia-smi -mig 0"},
};

/// States of GPUs under stress. A low power limit (software power capping) is normal then.
constexpr State kStatesUnderStress[] = {
    {heat_or_power_brake, Severity::Fail, kCheckNames.gpu_clocks_under_stress,
     "leave the node out; check its cooling and power", Blame::Minority},
    {slowed_by_hardware, Severity::Warn, kCheckNames.gpu_clocks_under_stress,
     "check again under load with nvidia-smi -q -d PERFORMANCE"},
    {slow_link, Severity::Fail, kCheckNames.gpu_pcie_under_stress, kReseat, Blame::Minority},
};

/// Adds one finding, "GPU 0, 3: ...", for each text that the used among `gpus` of a node have for this state.
void apply(const State& state, const Cluster& cluster, const RanksByNode& ranks,
           std::vector<Gpu> NodeFacts::*gpus, std::vector<Finding>& findings) {
    NodeFindings found(state.check, state.blame);
    for (const NodeFacts& node : cluster.nodes) {
        const UsedGpus used(node, ranks);
        std::map<std::string, std::string> gpus_by_problem;
        for (size_t i = 0; i < (node.*gpus).size(); ++i) {
            const Gpu& gpu = (node.*gpus)[i];
            const std::string problem = used.has(gpu) ? state.problem(gpu) : "";
            if (problem.empty()) continue;
            std::string& numbers = gpus_by_problem[problem];
            numbers += fmt::format("{}{}", numbers.empty() ? "" : ", ", i);
        }
        for (const auto& [problem, numbers] : gpus_by_problem) {
            found.add(node.name, {state.severity, fmt::format("GPU {}: {}", numbers, problem), state.remedy});
        }
    }
    append(found.findings(cluster), findings);
}

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

std::vector<Finding> check_gpu_answers(const Cluster& cluster) {
    constexpr const char* kGoneWords[] = {"is lost", "Unable to determine the device handle",
                                          "requires a reset", "fallen off the bus"};
    NodeFindings found(kCheckNames.nvidia_smi, Blame::Always);
    for (const NodeFacts& node : cluster.nodes) {
        const std::string& problem = node.gpus_problem;
        const bool gone =
            std::ranges::any_of(kGoneWords, [&](auto words) { return problem.find(words) != problem.npos; });
        if (node.gpus_hang || node.gpus_hang_under_stress) {
            found.add(node.name, {Severity::Fail,
                                  fmt::format("it does not answer{}; the driver or a GPU hangs",
                                              node.gpus_hang_under_stress ? " while the GPUs multiply" : ""),
                                  "leave the node out; restart it"});
        } else if (gone) {
            found.add(node.name,
                      {Severity::Fail, problem, "leave the node out; reset the GPU or restart the node"});
        } else if (!problem.empty()) {
            found.add(node.name, {Severity::Warn, problem + "; some GPUs may be unchecked",
                                  "run nvidia-smi on the node"});
        }
    }
    return found.findings(cluster);
}

std::vector<Finding> check_gpu_states(const Cluster& cluster) {
    std::vector<Finding> findings;
    const RanksByNode ranks(cluster);
    for (const State& state : kStates) apply(state, cluster, ranks, &NodeFacts::gpus, findings);
    for (const State& state : kStatesUnderStress)
        apply(state, cluster, ranks, &NodeFacts::gpus_under_stress, findings);
    return findings;
}

std::vector<Finding> check_gpu_memory_under_stress(const Cluster& cluster) {
    NodeFindings found(kCheckNames.gpu_memory_errors_under_stress, Blame::Always);
    for (const NodeFacts& node : cluster.nodes) {
        for (size_t i = 0; i < node.gpus.size(); ++i) {
            const Gpu& before = node.gpus[i];
            const auto after = std::ranges::find(node.gpus_after, before.bus_id, &Gpu::bus_id);
            if (after == node.gpus_after.end() || !before.uncorrected_errors || !after->uncorrected_errors ||
                *after->uncorrected_errors <= *before.uncorrected_errors)
                continue;
            found.add(node.name, {Severity::Fail,
                                  fmt::format("GPU {}: uncorrected memory errors during the pre-flight", i),
                                  "leave the node out; reset the GPU"});
        }
    }
    return found.findings(cluster);
}

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

}  // namespace argosy::preflight
