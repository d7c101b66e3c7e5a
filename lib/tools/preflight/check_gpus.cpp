// Checks the GPUs of nodes: whether each rank can use one and has it for itself (otherwise nothing is
// measured, reason_not_to_measure() in preflight.h), and whether they answer, are healthy and free for this
// job, and are as many and of one kind on all nodes.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/median.h"
#include "preflight/diagnose.h"
#include "preflight/finding.h"
#include "preflight/sources.h"

namespace argosy::preflight {
namespace {

// NVML's bits for the reasons why clocks are low.
constexpr int64_t kSoftwareThermal = 0x20, kHardwareThermal = 0x40, kPowerBrake = 0x80;
constexpr int64_t kHeatOrPower = kSoftwareThermal | kHardwareThermal | kPowerBrake;

// Each function below describes one problem of a GPU. The text is empty if the GPU does not have the problem.

std::string heat_or_power_brake(const Gpu& gpu) {
    const int64_t reasons = gpu.throttle_reasons.value_or(0);
    if (!(reasons & kHeatOrPower)) return "";
    const bool heat = reasons & (kSoftwareThermal | kHardwareThermal);
    return fmt::format("{} lowers the clocks", heat ? "heat" : "the power brake");
}

/// Gets WARN, because a GPU that remaps rows has contained the errors, and then uses other memory.
std::string memory_errors(const Gpu& gpu) {
    const int64_t errors = gpu.uncorrected_errors.value_or(0);
    return errors > 0 ? fmt::format("{} uncorrected memory errors since the driver was loaded", errors) : "";
}

std::string narrow_link(const Gpu& gpu) {
    if (!gpu.pcie_lanes || !(gpu.pcie_lanes < gpu.most_pcie_lanes)) return "";
    return fmt::format("uses {} of {} PCIe lanes", *gpu.pcie_lanes, *gpu.most_pcie_lanes);
}

/// Only under stress, because the links of GPUs at rest may run at a lower generation.
std::string slow_link(const Gpu& gpu) {
    if (!gpu.pcie_generation || !(gpu.pcie_generation < gpu.most_pcie_generation)) return "";
    return fmt::format("uses generation {} of {} of PCIe", *gpu.pcie_generation, *gpu.most_pcie_generation);
}

/// The amount is rounded to GiB, so that similar nodes make one finding.
std::string occupied(const Gpu& gpu) {
    constexpr double kHarmfulShare = 0.2;
    const auto used = static_cast<double>(gpu.used_mebibytes.value_or(0));
    const auto total = static_cast<double>(gpu.total_mebibytes.value_or(0));
    if (total <= 0 || used / total <= kHarmfulShare) return "";
    return fmt::format("other processes use about {} GiB of its memory", (*gpu.used_mebibytes + 512) / 1024);
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
    {memory_errors, Severity::Warn, kCheckNames.gpu_memory_errors,
     "if their number grows, have the GPU replaced"},
    {narrow_link, Severity::Fail, kCheckNames.gpu_pcie, kReseat, Blame::Minority},
    {occupied, Severity::Fail, kCheckNames.gpu_memory_in_use,
     "leave the node out; end the processes left there"},
    {divided, Severity::Warn, kCheckNames.mig, "run nvidia-smi -mig 0"},
};

/// States of GPUs under stress. A low power limit (software power capping) is normal then.
constexpr State kStatesUnderStress[] = {
    {heat_or_power_brake, Severity::Fail, kCheckNames.gpu_clocks_under_stress,
     "leave the node out; check its cooling and power", Blame::Minority},
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

/// The number of GPUs on the node that the ranks use.
size_t num_used_gpus(const std::vector<const RankFacts*>& ranks) {
    std::set<std::pair<std::string, std::string>> used;
    for (const RankFacts* rank : ranks) used.emplace(rank->visible_gpus->host, rank->visible_gpus->own);
    return used.size();
}

constexpr const char* kRepair =
    "leave the node out; check nvidia-smi, the kernel's log and nvidia-fabricmanager there";
constexpr const char* kUnhide =
    "check CUDA_VISIBLE_DEVICES and the job's --gpus options; a job on processors sets ARGOSY_DEVICE=cpu";

/// The number of GPUs that CUDA_VISIBLE_DEVICES names, up to its first text that is no name, as CUDA reads
/// it. None if the variable is not set.
std::optional<size_t> num_named(const RankFacts& rank) {
    const Variable* variable = rank.variable("CUDA_VISIBLE_DEVICES");
    if (!variable) return std::nullopt;
    const std::vector<std::string_view> names = split(variable->value, ',');
    const auto is_name = [](std::string_view name) {
        constexpr std::string_view kDigits = "0123456789";
        name = trimmed(name);
        return name.starts_with("GPU-") || name.starts_with("MIG-") ||
               (!name.empty() && kDigits.find(name.front()) != kDigits.npos);
    };
    return std::ranges::find_if_not(names, is_name) - names.begin();
}

/// The number of GPUs that nvidia-smi listed to the node's first rank and that CUDA has to show it, too.
size_t num_listed(const NodeFacts& node) {
    const bool has_mig =  // CUDA shows a process one MIG device
        std::ranges::any_of(node.gpus, [](const Gpu& gpu) { return gpu.mig_mode == "Enabled"; });
    return has_mig ? 1 : node.gpus.size();
}

/// Describes the problem of a rank with the GPUs that it sees; empty: there is none. `listed`: how many it
/// should see at least. `job_has_gpus`: whether a rank of the job sees a GPU, or the job requested some.
std::string problem_of(const VisibleGpus& seen, size_t listed, bool job_has_gpus) {
    if (!seen.problem.empty())
        return seen.own.empty() ? seen.problem : fmt::format("GPU {}: {}", seen.own, seen.problem);
    if (seen.count == 0 && (job_has_gpus || listed > 0)) {
        return listed > 0                ? "CUDA sees no GPU, but nvidia-smi lists some"
               : !seen.requested.empty() ? "CUDA sees no GPU, but the job requested some: " + seen.requested
                                         : "CUDA sees no GPU, but does for other ranks";
    }
    if (static_cast<size_t>(seen.count) < listed)
        return fmt::format("CUDA sees {} GPUs, but nvidia-smi lists {}", seen.count, listed);
    return "";
}

}  // namespace

std::vector<Finding> check_visible_gpus(const Cluster& cluster) {
    // A single node is left out, too: if its GPUs are at fault, the next start succeeds on another node.
    NodeFindings broken(kCheckNames.visible_gpus,
                        cluster.nodes.size() == 1 ? Blame::Always : Blame::Deviants);
    NodeFindings hidden(kCheckNames.visible_gpus);
    const bool job_has_gpus = std::ranges::any_of(cluster.ranks, [](const RankFacts& rank) {
        return rank.visible_gpus && (rank.visible_gpus->count > 0 || !rank.visible_gpus->requested.empty());
    });
    const RanksByNode ranks(cluster);
    for (const NodeFacts& node : cluster.nodes) {
        size_t listed = num_listed(node);
        for (const RankFacts* rank : ranks.on(node)) {
            if (!rank->visible_gpus) continue;
            const VisibleGpus& seen = *rank->visible_gpus;
            const size_t named = num_named(*rank).value_or(listed);
            if (seen.count == 0 && named == 0 && num_named(*rank) && (job_has_gpus || listed > 0)) {
                hidden.add(node.name, {Severity::Fail, "CUDA_VISIBLE_DEVICES hides all GPUs", kUnhide});
            } else if (const std::string what = problem_of(seen, std::min(listed, named), job_has_gpus);
                       !what.empty()) {
                broken.add(node.name, {Severity::Fail, what, kRepair});
            }
            listed = std::min<size_t>(listed, 1);  // the launcher may show each rank another GPU
        }
    }
    std::vector<Finding> findings = broken.findings(cluster);
    append(hidden.findings(cluster), findings);
    return findings;
}

std::vector<Finding> check_ranks_per_gpu(const Cluster& cluster) {
    const RanksByNode ranks(cluster);
    std::vector<std::string> nodes;
    std::string numbers;  // of the first of these nodes
    for (const NodeFacts& node : cluster.nodes) {
        std::vector<const RankFacts*> with_gpu = ranks.on(node);
        std::erase_if(with_gpu, [](const RankFacts* rank) {
            return !rank->visible_gpus || rank->visible_gpus->own.empty();
        });
        const size_t num_used = num_used_gpus(with_gpu);
        if (num_used == with_gpu.size()) continue;
        if (nodes.empty())
            numbers = fmt::format("{} ranks for {} on {}", with_gpu.size(), num_used, node.name);
        nodes.push_back(node.name);
    }
    if (nodes.empty()) return {};
    const bool bad = nodes.size() < cluster.nodes.size();
    return {{Severity::Fail, kCheckNames.ranks_per_gpu, describe_nodes(nodes, cluster),
             fmt::format("ranks have the same GPU, but NCCL needs one for each rank: {}", numbers),
             bad ? "leave the node out, which shows fewer GPUs than others; check nvidia-smi there"
                 : "start as many ranks on a node as it has GPUs, or measure over MPI (--backend mpi)",
             bad ? nodes : std::vector<std::string>{}}};
}

std::vector<Finding> check_gpu_answers(const Cluster& cluster) {
    constexpr const char* kGoneWords[] = {"is lost", "Unable to determine the device handle",
                                          "requires a reset", "fallen off the bus"};
    NodeFindings found(kCheckNames.nvidia_smi, Blame::Always);
    for (const NodeFacts& node : cluster.nodes) {
        const std::string& problem = node.gpus_problem;
        const bool gone =
            std::ranges::any_of(kGoneWords, [&](auto words) { return problem.find(words) != problem.npos; });
        if (node.gpus_hang || node.gpus_hang_under_load) {
            found.add(node.name, {Severity::Fail,
                                  fmt::format("it does not answer{}; the driver or a GPU hangs",
                                              node.gpus_hang_under_load ? " while the GPUs multiply" : ""),
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
        apply(state, cluster, ranks, &NodeFacts::gpus_under_load, findings);
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

/// If a job has several nodes, and more than half of them have a fault, it may be a setting of the site.
std::vector<Finding> check_dcgm(const Cluster& cluster) {
    NodeFindings found(kCheckNames.dcgm, cluster.nodes.size() > 1 ? Blame::Minority : Blame::Always);
    for (const NodeFacts& node : cluster.nodes) {
        for (const DcgmAnswer& answer : node.dcgm) {
            for (const DcgmAnswer::Fault& fault : answer.faults) {
                const std::string what = fmt::format("{}: {}", answer.command, fault.what);
                if (fault.severe) {
                    found.add(node.name, {Severity::Fail, what,
                                          "leave the node out; look the error up in DCGM's documentation, "
                                          "reset the GPU or restart the node"});
                } else {
                    found.add(node.name, {Severity::Warn, what, "look the error up in DCGM's documentation"});
                }
            }
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
    std::map<std::string, int> gpus_by_model;
    for (const NodeFacts& node : cluster.nodes) {
        for (const Gpu& gpu : node.gpus) ++gpus_by_model[gpu.name];
    }
    NodeFindings found(kCheckNames.gpu_models);
    if (gpus_by_model.size() < 2) return {};
    const auto usual =
        std::ranges::max_element(gpus_by_model, {}, [](const auto& entry) { return entry.second; });
    for (const NodeFacts& node : cluster.nodes) {
        for (const Gpu& gpu : node.gpus) {
            if (gpu.name == usual->first) continue;
            found.add(node.name,
                      {Severity::Warn, fmt::format("'{}', but most GPUs have '{}'", gpu.name, usual->first),
                       "ask for nodes of one kind, because all ranks wait for the slowest GPU"});
        }
    }
    return found.findings(cluster);
}

}  // namespace argosy::preflight
