// Checks each GPU by itself: whether it is healthy, and free for this job.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "preflight/checks.h"
#include "preflight/places.h"

namespace argosy::preflight {
namespace {

// NVML's bits for the reasons why clocks are low.
constexpr int64_t kHardwareSlowdown = 0x8, kSoftwareThermal = 0x20, kHardwareThermal = 0x40,
                  kPowerBrake = 0x80;
constexpr int64_t kHeatOrPower = kSoftwareThermal | kHardwareThermal | kPowerBrake;

bool throttled(const Gpu& gpu) { return gpu.throttle_reasons.value_or(0) & kHeatOrPower; }
std::string throttle_words(const Gpu& gpu) {
    const bool heat = *gpu.throttle_reasons & (kSoftwareThermal | kHardwareThermal);
    return fmt::format("clocks lowered by {}", heat ? "heat" : "the power supply's brake");
}

/// WARN only: drivers also report this reason alone for a moment when clocks change.
bool slowed(const Gpu& gpu) {
    return gpu.throttle_reasons.value_or(0) & kHardwareSlowdown && !throttled(gpu);
}
std::string slowed_words(const Gpu&) { return "clocks lowered by hardware, maybe for a moment"; }

bool has_errors(const Gpu& gpu) { return gpu.uncorrected_errors.value_or(0) > 0; }
std::string error_words(const Gpu& gpu) {
    return fmt::format("{} uncorrected memory errors since the driver was loaded", *gpu.uncorrected_errors);
}

bool remapping_failed(const Gpu& gpu) { return gpu.remapping_failed.value_or(false); }
std::string failed_words(const Gpu&) { return "no spare rows are left for broken memory"; }
bool remapping_pending(const Gpu& gpu) { return gpu.remapping_pending.value_or(false); }
std::string pending_words(const Gpu&) {
    return "broken memory waits for a reset to be replaced by spare rows";
}

bool narrow(const Gpu& gpu) { return gpu.pcie_lanes && gpu.pcie_lanes < gpu.most_pcie_lanes; }
std::string narrow_words(const Gpu& gpu) {
    return fmt::format("{} PCIe lanes of {}", *gpu.pcie_lanes, *gpu.most_pcie_lanes);
}

/// The driver and a display use less memory than this.
constexpr int64_t kMuchMebibytes = 1024;
constexpr double kHarmfulPart = 0.2;
double used_part(const Gpu& gpu) {
    const auto total = static_cast<double>(gpu.total_mebibytes.value_or(0));
    return total > 0 ? static_cast<double>(gpu.used_mebibytes.value_or(0)) / total : 0;
}
bool occupied(const Gpu& gpu) { return used_part(gpu) > kHarmfulPart; }
bool partly_occupied(const Gpu& gpu) {
    return gpu.used_mebibytes.value_or(0) > kMuchMebibytes && !occupied(gpu);
}
/// The amount is rounded to GiB, so that similar nodes make one finding.
std::string occupied_words(const Gpu& gpu) {
    return fmt::format("about {} GiB of memory in use by somebody else", (*gpu.used_mebibytes + 512) / 1024);
}

bool divided(const Gpu& gpu) { return gpu.mig_mode == "Enabled"; }
std::string divided_words(const Gpu&) { return "MIG divides it: its parts do not reach each other"; }

bool not_persistent(const Gpu& gpu) { return gpu.persistence == "Disabled"; }
std::string persistence_words(const Gpu&) {
    return "persistence mode is off: each start loads the driver anew";
}

struct State {
    bool (*holds)(const Gpu&);
    std::string (*words)(const Gpu&);
    Severity severity;
    const char* check;
    const char* remedy;
};
constexpr State kStates[] = {
    {throttled, throttle_words, Severity::Fail, "GPU clocks",
     "leave the node out; look at its cooling and power"},
    {slowed, slowed_words, Severity::Warn, "GPU clocks", "look again: nvidia-smi -q -d PERFORMANCE"},
    {has_errors, error_words, Severity::Fail, "GPU memory errors", "leave the node out; reset the GPU"},
    {remapping_failed, failed_words, Severity::Fail, "GPU memory errors",
     "leave the node out; replace the GPU"},
    {remapping_pending, pending_words, Severity::Warn, "GPU memory errors", "reset the GPU"},
    {narrow, narrow_words, Severity::Fail, "GPU PCIe link", "leave the node out; reseat the GPU"},
    {occupied, occupied_words, Severity::Fail, "GPU memory in use",
     "leave the node out; end what is left there"},
    {partly_occupied, occupied_words, Severity::Warn, "GPU memory in use", "see nvidia-smi for whose it is"},
    {divided, divided_words, Severity::Warn, "MIG", "nvidia-smi -mig 0"},
    {not_persistent, persistence_words, Severity::Warn, "GPU persistence",
     "nvidia-smi -pm 1, or nvidia-persistenced"},
};

/// Adds one finding, "GPUs 0, 3: ...", for each text that GPUs of a node have for this state.
void apply(const State& state, const Cluster& cluster, std::vector<Finding>& findings) {
    NodeFindings found(state.check, Blame::Always);
    for (const NodeFacts& node : cluster.nodes) {
        std::map<std::string, std::string> gpus_by_words;
        for (size_t i = 0; i < node.gpus.size(); ++i) {
            if (!state.holds(node.gpus[i])) continue;
            std::string& numbers = gpus_by_words[state.words(node.gpus[i])];
            numbers += fmt::format("{}{}", numbers.empty() ? "" : ", ", i);
        }
        for (const auto& [words, numbers] : gpus_by_words) {
            found.add(node.name, {state.severity, fmt::format("GPU {}: {}", numbers, words), state.remedy});
        }
    }
    std::ranges::move(found.findings(cluster), std::back_inserter(findings));
}

}  // namespace

std::vector<Finding> check_gpu_states(const Cluster& cluster) {
    std::vector<Finding> findings;
    for (const State& state : kStates) apply(state, cluster, findings);
    return findings;
}

}  // namespace argosy::preflight
