// Checks nodes as machines: the folder that the run writes to, limits for the ranks, and the CPUs that ranks
// may run on.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/median.h"
#include "base/units.h"
#include "preflight/diagnose.h"
#include "preflight/finding.h"

namespace argosy::preflight {
namespace {

constexpr double kMega = 1e6;

/// The most serious problem of the folder, if any. `usual`: median write speed of all nodes (bytes/s).
std::optional<NodeFindings::Problem> problem_of(const FolderFacts& folder, double usual) {
    constexpr double kMinSpeed = 50 * kMega, kMinShare = 0.25;
    constexpr int64_t kMinFreeBytes = 10 * kGibi;
    using Problem = NodeFindings::Problem;
    if (!folder.problem.empty()) {
        return Problem{
            Severity::Fail, fmt::format("{}: {}", folder.path, folder.problem),
            "mount the file system, free some space, or set job.dump_folder to a faster file system"};
    }
    if (folder.space.free_bytes < kMinFreeBytes) {
        return Problem{Severity::Warn,
                       fmt::format("{} has {} GiB free", folder.path, folder.space.free_bytes / kGibi),
                       "free space for checkpoints (the weights and the optimizer's state)"};
    }
    if (folder.bytes_per_second < kMinShare * usual) {
        return Problem{Severity::Warn,
                       fmt::format("{} is written at less than a quarter of the {:.0f} MB/s of other nodes",
                                   folder.path, usual / kMega),
                       "check the node's connection to the file system"};
    }
    if (folder.bytes_per_second < kMinSpeed) {
        return Problem{Severity::Warn,
                       fmt::format("{} is written at less than {:.0f} MB/s, so checkpoints take long",
                                   folder.path, kMinSpeed / kMega),
                       "set job.dump_folder to a faster file system"};
    }
    return std::nullopt;
}

constexpr const char* kBindingRemedy =
    "ask Slurm for whole nodes (--exclusive), start srun with --cpu-bind=none but without --cpus-per-task "
    "and --exact, and start the ranks through jobs/bind.sh";

}  // namespace

std::vector<Finding> check_dump_folder(const Cluster& cluster) {
    std::vector<double> speeds;
    for (const NodeFacts& node : cluster.nodes) {
        if (node.dump_folder && node.dump_folder->problem.empty()) {
            speeds.push_back(node.dump_folder->bytes_per_second);
        }
    }
    NodeFindings found(kCheckNames.dump_folder);
    for (const NodeFacts& node : cluster.nodes) {
        if (!node.dump_folder) continue;
        const auto problem = problem_of(*node.dump_folder, upper_median(speeds));
        if (problem) found.add(node.name, *problem);
    }
    return found.findings(cluster);
}

std::vector<Finding> check_locked_memory(const Cluster& cluster) {
    NodeFindings found(kCheckNames.locked_memory);
    const RanksByNode ranks(cluster);
    for (const NodeFacts& node : cluster.nodes) {
        if (std::ranges::none_of(node.adapter_ports, &AdapterPort::carries_data)) continue;
        for (const RankFacts* rank : ranks.on(node)) {
            if (rank->memlock_bytes == kUnlimited) continue;
            const bool fails = rank->memlock_bytes < kGibi && cluster.nodes.size() > 1;
            found.add(node.name,
                      {fails ? Severity::Fail : Severity::Warn,
                       fmt::format("limited to {} KiB per process, but adapters send from locked memory",
                                   rank->memlock_bytes / 1024),
                       "set LimitMEMLOCK=infinity for slurmd, and PropagateResourceLimitsExcept=MEMLOCK in "
                       "slurm.conf"});
        }
    }
    return found.findings(cluster);
}

/// Each rank has buffers in /dev/shm for every neighbour, so a container's default of 64 MiB is too little.
std::vector<Finding> check_shared_memory(const Cluster& cluster) {
    constexpr int64_t kBytesPerRank = 64 * kMebi;
    NodeFindings found(kCheckNames.shared_memory);
    const RanksByNode by_node(cluster);
    for (const NodeFacts& node : cluster.nodes) {
        const int64_t ranks = std::ssize(by_node.on(node));
        if (!node.shared_memory || ranks < 2 || node.shared_memory->free_bytes >= ranks * kBytesPerRank)
            continue;
        found.add(node.name,
                  {Severity::Warn,
                   fmt::format("{} MiB are free, but {} ranks need {} MiB",
                               node.shared_memory->free_bytes / kMebi, ranks, ranks * kBytesPerRank / kMebi),
                   "remove files left there, or give the container more (--shm-size)"});
    }
    return found.findings(cluster);
}

/// Checks ranks that are bound to some of a node's CPUs. Ranks that may use all CPUs are fine.
std::vector<Finding> check_binding(const Cluster& cluster) {
    NodeFindings found(kCheckNames.cpus_of_ranks);
    const RanksByNode by_node(cluster);
    for (const NodeFacts& node : cluster.nodes) {
        std::map<std::string, int> ranks_by_cpus;
        const std::vector<const RankFacts*>& ranks = by_node.on(node);
        for (const RankFacts* rank : ranks) {
            if (rank->num_cpus == 0 || rank->num_cpus >= node.num_cpus) continue;
            if (rank->num_cpus == 1 && node.num_cpus >= 2 * std::ssize(ranks)) {
                found.add(node.name,
                          {Severity::Warn,
                           fmt::format("a rank may run on only one of the {} CPUs, and there are {} ranks",
                                       node.num_cpus, ranks.size()),
                           kBindingRemedy});
            }
            if (++ranks_by_cpus[rank->cpus] != rank->num_cpus + 1) continue;
            found.add(node.name,
                      {Severity::Warn,
                       fmt::format("there are more ranks than CPUs on CPUs {}, but the node has {} CPUs",
                                   rank->cpus, node.num_cpus),
                       kBindingRemedy});
        }
    }
    return found.findings(cluster);
}

}  // namespace argosy::preflight
