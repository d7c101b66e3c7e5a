// Checks the CPUs that ranks may run on: how many each rank has, which CPUs ranks share, and whether they are
// near the rank's GPU.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "preflight/diagnose.h"
#include "preflight/places.h"
#include "preflight/sources.h"

namespace argosy::preflight {
namespace {

constexpr const char* kRemedy =
    "ask Slurm for whole nodes (--exclusive), start srun with --cpu-bind=none but without --cpus-per-task "
    "and --exact, and ranks through jobs/bind.sh";

std::vector<const RankFacts*> ranks_of(const NodeFacts& node, const Cluster& cluster) {
    std::vector<const RankFacts*> ranks;
    for (const RankFacts& rank : cluster.ranks) {
        if (rank.node == node.name) ranks.push_back(&rank);
    }
    return ranks;
}

/// The GPU that a rank computes on. `number` is the rank's index on its node and selects one of the GPUs that
/// CUDA_VISIBLE_DEVICES lists (by index, UUID or beginning of a UUID). Null if the GPU is unknown, and in a
/// build without CUDA.
const Gpu* gpu_of(const RankFacts& rank, size_t number, const NodeFacts& node) {
    if (node.gpus.empty() || rank.cuda_version.empty()) return nullptr;
    const Variable* visible = rank.variable("CUDA_VISIBLE_DEVICES");
    if (!visible) return &node.gpus[number % node.gpus.size()];
    const std::vector<std::string_view> names = split(visible->value, ',');
    if (names.empty()) return nullptr;
    const std::string_view name = names[number % names.size()];
    const auto named =
        std::ranges::find_if(node.gpus, [&](const Gpu& gpu) { return gpu.uuid.starts_with(name); });
    if (named != node.gpus.end()) return &*named;
    const auto index = leading_integer(name);
    return index && *index >= 0 && *index < std::ssize(node.gpus) ? &node.gpus[*index] : nullptr;
}

bool share_any(const std::vector<int>& cpus, const std::vector<int>& others) {
    return std::ranges::find_first_of(cpus, others) != cpus.end();
}

}  // namespace

/// Checks ranks that are bound to some of a node's CPUs. Ranks that may use all CPUs are fine.
std::vector<Finding> check_binding(const Cluster& cluster) {
    NodeFindings found("CPUs of the ranks");
    for (const NodeFacts& node : cluster.nodes) {
        std::map<std::string, int> ranks_by_cpus;
        const int ranks = ranks_on(node.name, cluster);
        for (const RankFacts& rank : cluster.ranks) {
            if (rank.node != node.name || rank.num_cpus == 0 || rank.num_cpus >= node.num_cpus) continue;
            if (rank.num_cpus == 1 && node.num_cpus >= 2 * ranks) {
                found.add(node.name,
                          {Severity::Warn,
                           fmt::format("a rank may run on one CPU alone, and the node has {} for {}",
                                       node.num_cpus, ranks),
                           kRemedy});
            }
            if (++ranks_by_cpus[rank.cpus] != rank.num_cpus + 1) continue;
            found.add(node.name, {Severity::Warn,
                                  fmt::format("more ranks than CPUs may run on {} only, of {} CPUs",
                                              rank.cpus, node.num_cpus),
                                  kRemedy});
        }
    }
    return found.findings(cluster);
}

/// Ranks that all may run on the same CPUs are not bound one by one, which is fine. Ranks with different CPUs
/// should not share a CPU while another CPU of the node has no rank.
std::vector<Finding> check_shared_cpus(const Cluster& cluster) {
    NodeFindings found("CPUs that ranks share");
    for (const NodeFacts& node : cluster.nodes) {
        std::map<int, int> ranks_by_cpu;
        std::set<std::string> masks;
        for (const RankFacts* rank : ranks_of(node, cluster)) {
            if (rank->cpus.empty()) continue;
            masks.insert(rank->cpus);
            for (const int cpu : parse_cpu_list(rank->cpus)) ++ranks_by_cpu[cpu];
        }
        const auto num_shared =
            std::ranges::count_if(ranks_by_cpu, [](const auto& entry) { return entry.second > 1; });
        const int64_t num_free = node.num_cpus - std::ssize(ranks_by_cpu);
        if (masks.size() < 2 || num_shared == 0 || num_free <= 0) continue;
        found.add(node.name,
                  {Severity::Warn,
                   fmt::format("{} CPUs are those of several ranks, and {} of the node's {} are no rank's",
                               num_shared, num_free, node.num_cpus),
                   kRemedy});
    }
    return found.findings(cluster);
}

/// One CPU near the GPU is enough, because a rank that is not bound, or is bound to a whole socket, has
/// distant CPUs too.
std::vector<Finding> check_cpus_near_gpus(const Cluster& cluster) {
    std::vector<int> far;
    std::string example;
    for (const NodeFacts& node : cluster.nodes) {
        for (size_t number = 0; const RankFacts* rank : ranks_of(node, cluster)) {
            const Gpu* const gpu = gpu_of(*rank, number++, node);
            const std::vector<int> cpus = parse_cpu_list(rank->cpus);
            const std::vector<int> near = parse_cpu_list(gpu ? gpu->near_cpus : "");
            if (cpus.empty() || near.empty() || share_any(cpus, near)) continue;
            if (far.empty()) {
                example = fmt::format("rank {} may run on {}, and its GPU {} is near {}", rank->rank,
                                      rank->cpus, gpu->bus_id, gpu->near_cpus);
            }
            far.push_back(rank->rank);
        }
    }
    if (far.empty()) return {};
    std::ranges::sort(far);
    return {{Severity::Warn, "CPUs near the GPUs", describe_ranks(far, cluster),
             "no CPU of a rank is near its GPU: " + example, kRemedy}};
}

}  // namespace argosy::preflight
