// Checks the GPUs of nodes: whether they answer, which errors the kernel has logged, and whether they are
// healthy and free for this job.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "preflight/diagnose.h"
#include "preflight/finding.h"

namespace argosy::preflight {
namespace {

/// XIDs that mean that the GPU, its memory or its links are broken. A program causes most other XIDs.
/// 144 to 150 are errors of NVLink 5, some of them nonfatal; 154 asks for a reset or restart.
constexpr std::array kHardwareXids = {48,  62,  64,  74,  79,  95,  119, 120, 140,
                                      143, 144, 145, 146, 147, 148, 149, 150, 154};
/// XIDs of memory errors that the GPU has corrected or contained.
constexpr std::array kMemoryXids = {63, 92, 94};
constexpr double kRecentHours = 24;

template <size_t N>
bool among(const std::array<int, N>& codes, int code) {
    return std::ranges::find(codes, code) != codes.end();
}

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

std::string count_memory_errors(const Gpu& gpu) {
    const int64_t errors = gpu.uncorrected_errors.value_or(0);
    return errors > 0 ? fmt::format("{} uncorrected memory errors since the driver was loaded", errors) : "";
}
/// A GPU that remaps rows ends only the program that read the broken memory (XID 94; XID 95 if it could not),
/// and then uses other memory.
bool contains_errors(const Gpu& gpu) { return gpu.remapping_failed.has_value(); }
std::string memory_errors(const Gpu& gpu) { return contains_errors(gpu) ? "" : count_memory_errors(gpu); }
std::string contained_memory_errors(const Gpu& gpu) {
    return contains_errors(gpu) ? count_memory_errors(gpu) : "";
}

std::string remapping_failed(const Gpu& gpu) {
    return gpu.remapping_failed.value_or(false) ? "no spare rows are left for broken memory" : "";
}

std::string remapping_pending(const Gpu& gpu) {
    return gpu.remapping_pending.value_or(false) ? "spare rows will replace broken memory after a reset" : "";
}

std::string narrow_link(const Gpu& gpu) {
    if (!gpu.pcie_lanes || !(gpu.pcie_lanes < gpu.max_pcie_lanes)) return "";
    return fmt::format("uses {} of {} PCIe lanes", *gpu.pcie_lanes, *gpu.max_pcie_lanes);
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

std::string not_persistent(const Gpu& gpu) {
    if (gpu.persistence != "Disabled") return "";
    return "persistence mode is off, so each start loads the driver again";
}

struct State {
    std::string (*problem)(const Gpu&);
    Severity severity;
    const char* check;
    const char* remedy;
    Blame blame = Blame::Always;
};
constexpr State kStates[] = {
    {heat_or_power_brake, Severity::Fail, kCheckNames.gpu_clocks,
     "leave the node out; check its cooling and power", Blame::Minority},
    {slowed_by_hardware, Severity::Warn, kCheckNames.gpu_clocks,
     "check again with nvidia-smi -q -d PERFORMANCE"},
    {memory_errors, Severity::Fail, kCheckNames.gpu_memory_errors, "leave the node out; reset the GPU"},
    {contained_memory_errors, Severity::Warn, kCheckNames.gpu_memory_errors,
     "if their number grows, have the GPU replaced"},
    {remapping_failed, Severity::Fail, kCheckNames.gpu_memory_errors, "leave the node out; replace the GPU"},
    {remapping_pending, Severity::Warn, kCheckNames.gpu_memory_errors, "reset the GPU"},
    {narrow_link, Severity::Fail, kCheckNames.gpu_pcie, "leave the node out; reseat the GPU",
     Blame::Minority},
    {occupied, Severity::Fail, kCheckNames.gpu_memory_in_use,
     "leave the node out; end the processes left there"},
    {partly_occupied, Severity::Warn, kCheckNames.gpu_memory_in_use,
     "see in nvidia-smi whose processes they are"},
    {divided, Severity::Warn, kCheckNames.mig, "run nvidia-smi -mig 0"},
    {not_persistent, Severity::Warn, kCheckNames.gpu_persistence,
     "run nvidia-smi -pm 1, or nvidia-persistenced"},
};

/// States of GPUs under stress. A low power limit (software power capping) is normal then.
constexpr State kStatesUnderStress[] = {
    {heat_or_power_brake, Severity::Fail, kCheckNames.gpu_clocks_under_stress,
     "leave the node out; check its cooling and power", Blame::Minority},
    {slowed_by_hardware, Severity::Warn, kCheckNames.gpu_clocks_under_stress,
     "check again under load with nvidia-smi -q -d PERFORMANCE"},
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
        if (node.corrupt_info_rom) {
            found.add(node.name, {Severity::Warn, "it says that a GPU's infoROM is corrupt",
                                  "have it repaired; nvidia-smi names the GPU"});
        }
    }
    return found.findings(cluster);
}

/// An error without a time gets WARN, because it may be old; a nonfatal one, because the link has recovered.
/// Fatal errors of NVSwitches count as broken hardware.
std::vector<Finding> check_gpu_xids(const Cluster& cluster) {
    NodeFindings found(kCheckNames.gpu_xids, Blame::Always);
    for (const NodeFacts& node : cluster.nodes) {
        for (const Xid& xid : node.xids) {
            const bool hardware = xid.of_switch || among(kHardwareXids, xid.code);
            if (!hardware && !among(kMemoryXids, xid.code)) continue;
            const bool recent = xid.age_hours && *xid.age_hours < kRecentHours;
            const std::string what = fmt::format("{} {} of {} {}{}",
                                                 xid.of_switch  ? "fatal SXid"
                                                 : xid.nonfatal ? "nonfatal XID"
                                                                : "XID",
                                                 xid.code, xid.of_switch ? "NVSwitch" : "GPU", xid.bus_id,
                                                 !xid.age_hours ? ""
                                                 : recent       ? ", within the last day"
                                                                : ", more than a day ago");
            if (hardware && recent && !xid.nonfatal) {
                found.add(node.name,
                          {Severity::Fail, what, "leave the node out; look up the code, restart the node"});
            } else {
                found.add(node.name, {Severity::Warn, what, "look up the code in NVIDIA's list"});
            }
        }
    }
    return found.findings(cluster);
}

std::vector<Finding> check_gpu_compute_mode(const Cluster& cluster) {
    NodeFindings found(kCheckNames.gpu_compute_mode);
    constexpr const char* kRemedy = "run nvidia-smi -c DEFAULT";
    const RanksByNode ranks(cluster);
    for (const NodeFacts& node : cluster.nodes) {
        const bool shared = ranks.on(node).size() > node.gpus.size();
        const UsedGpus used(node, ranks);
        for (const Gpu& gpu : node.gpus) {
            if (!used.has(gpu)) continue;
            if (gpu.compute_mode == "Prohibited") {
                found.add(node.name,
                          {Severity::Fail, "it is Prohibited, so no program may use the GPU", kRemedy});
            } else if (gpu.compute_mode.starts_with("Exclusive") && shared) {
                found.add(node.name, {Severity::Fail,
                                      "it is exclusive, and the node has more ranks than GPUs", kRemedy});
            } else if (gpu.compute_mode.starts_with("Exclusive")) {
                found.add(node.name, {Severity::Warn,
                                      "it is exclusive, so no tool can use a GPU beside the job", kRemedy});
            }
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

}  // namespace argosy::preflight
