// Checks the GPUs of nodes: whether they answer, which errors the kernel has logged, and whether they are
// alike, healthy, and free for this job.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>

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
    {"GPU models", [](const Gpu& gpu) { return gpu.name; },
     "ask for nodes of one kind: the slowest GPU sets the pace"},
    {"GPU drivers", [](const Gpu& gpu) { return gpu.driver; }, "install the same driver on all nodes"},
    {"GPU PCIe generation",
     [](const Gpu& gpu) { return fmt::format("{}", gpu.most_pcie_generation.value_or(0)); },
     "look at the slot, and at the firmware's settings"},
};

/// XIDs that mean that the GPU, its memory or its links are broken. A program causes most other XIDs.
constexpr std::array kHardwareXids = {48, 62, 64, 74, 79, 95, 119, 120, 140, 143};
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

bool throttled(const Gpu& gpu) { return gpu.throttle_reasons.value_or(0) & kHeatOrPower; }
std::string throttle_words(const Gpu& gpu) {
    const bool heat = *gpu.throttle_reasons & (kSoftwareThermal | kHardwareThermal);
    return fmt::format("clocks lowered by {}", heat ? "heat" : "the power supply's brake");
}

/// Gets WARN, because drivers also report this reason alone for a moment when clocks change.
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

/// Adds one finding, "GPU 0, 3: ...", for each text that GPUs of a node have for this state.
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

std::vector<Finding> check_gpu_answers(const Cluster& cluster) {
    constexpr const char* kGoneWords[] = {"is lost", "Unable to determine the device handle",
                                          "requires a reset", "fallen off the bus"};
    NodeFindings found("nvidia-smi", Blame::Always);
    for (const NodeFacts& node : cluster.nodes) {
        const std::string& problem = node.gpus_problem;
        const bool gone =
            std::ranges::any_of(kGoneWords, [&](auto words) { return problem.find(words) != problem.npos; });
        if (node.gpus_hang) {
            found.add(node.name, {Severity::Fail, "it does not answer: the driver or a GPU hangs",
                                  "leave the node out; restart it"});
        } else if (gone) {
            found.add(node.name,
                      {Severity::Fail, problem, "leave the node out; reset the GPU or restart the node"});
        } else if (!problem.empty()) {
            found.add(node.name, {Severity::Warn, problem + "; GPUs may be unchecked",
                                  "see what nvidia-smi says there"});
        }
    }
    return found.findings(cluster);
}

/// An error without a time gets WARN, because it may be old.
std::vector<Finding> check_gpu_errors_logged(const Cluster& cluster) {
    NodeFindings found("GPU errors in the kernel's log", Blame::Always);
    for (const NodeFacts& node : cluster.nodes) {
        for (const Xid& xid : node.xids) {
            const bool hardware = among(kHardwareXids, xid.code);
            if (!hardware && !among(kMemoryXids, xid.code)) continue;
            const bool recent = xid.age_hours && *xid.age_hours < kRecentHours;
            const std::string what = fmt::format("XID {} of GPU {}{}", xid.code, xid.bus_id,
                                                 !xid.age_hours ? ""
                                                 : recent       ? ", within the last day"
                                                                : ", more than a day ago");
            if (hardware && recent) {
                found.add(node.name,
                          {Severity::Fail, what, "leave the node out; look the XID up, restart the node"});
            } else {
                found.add(node.name, {Severity::Warn, what, "look the XID up in NVIDIA's list"});
            }
        }
    }
    return found.findings(cluster);
}

std::vector<Finding> check_gpu_numbers(const Cluster& cluster) {
    NodeFindings found("number of GPUs", Blame::Always);
    std::vector<double> counts;
    for (const NodeFacts& node : cluster.nodes) counts.push_back(static_cast<double>(node.gpus.size()));
    const double expected = upper_median(counts);
    for (size_t i = 0; i < cluster.nodes.size(); ++i) {
        if (counts[i] == expected) continue;
        const bool fewer = counts[i] < expected;
        found.add(cluster.nodes[i].name,
                  {fewer ? Severity::Fail : Severity::Warn,
                   fmt::format("GPUs there: {}, on other nodes: {}", counts[i], expected),
                   fewer ? "leave the node out; see nvidia-smi and the kernel's log there"
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
                          {Severity::Warn, fmt::format("'{}', most have '{}'", value, usual->first),
                           property.remedy});
            }
        }
        std::ranges::move(found.findings(cluster), std::back_inserter(findings));
    }
    return findings;
}

std::vector<Finding> check_gpu_compute_mode(const Cluster& cluster) {
    NodeFindings found("GPU compute mode");
    constexpr const char* kRemedy = "nvidia-smi -c DEFAULT";
    for (const NodeFacts& node : cluster.nodes) {
        const bool shared = ranks_on(node.name, cluster) > static_cast<int>(node.gpus.size());
        for (const Gpu& gpu : node.gpus) {
            if (gpu.compute_mode == "Prohibited") {
                found.add(node.name,
                          {Severity::Fail, "it is Prohibited: no program may use the GPU", kRemedy});
            } else if (gpu.compute_mode.starts_with("Exclusive") && shared) {
                found.add(node.name, {Severity::Fail,
                                      "it is exclusive, and the node has more ranks than GPUs", kRemedy});
            } else if (gpu.compute_mode.starts_with("Exclusive")) {
                found.add(node.name, {Severity::Warn,
                                      "it is exclusive: one process a GPU, and no tools beside it", kRemedy});
            }
        }
    }
    return found.findings(cluster);
}

std::vector<Finding> check_gpu_states(const Cluster& cluster) {
    std::vector<Finding> findings;
    for (const State& state : kStates) apply(state, cluster, findings);
    return findings;
}

}  // namespace argosy::preflight
