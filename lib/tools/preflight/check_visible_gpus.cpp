// Checks the GPUs that CUDA shows the ranks: whether each rank can use one, and has it for itself. Otherwise
// nothing is measured (reason_not_to_measure() in preflight.h).
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "preflight/diagnose.h"
#include "preflight/finding.h"
#include "preflight/sources.h"

namespace argosy::preflight {
namespace {

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

}  // namespace argosy::preflight
