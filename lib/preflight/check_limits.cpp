// Checks a node's limits for its ranks: locked memory, open files, shared memory.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "preflight/checks.h"
#include "preflight/places.h"

namespace argosy::preflight {
namespace {

const NodeFacts* node_named(const std::string& name, const Cluster& cluster) {
    const auto node = std::ranges::find(cluster.nodes, name, &NodeFacts::name);
    return node == cluster.nodes.end() ? nullptr : &*node;
}

}  // namespace

std::vector<Finding> check_locked_memory(const Cluster& cluster) {
    NodeFindings found("locked memory");
    for (const RankFacts& rank : cluster.ranks) {
        const NodeFacts* node = node_named(rank.node, cluster);
        if (rank.memlock_bytes == kUnlimited || !node ||
            std::ranges::none_of(node->adapter_ports, &AdapterPort::active)) {
            continue;
        }
        const bool little = rank.memlock_bytes < kGibi && cluster.nodes.size() > 1;
        found.add(
            rank.node,
            {little ? Severity::Fail : Severity::Warn,
             fmt::format("limited to {} KiB a process, and adapters need what they send locked",
                         rank.memlock_bytes / 1024),
             "LimitMEMLOCK=infinity for slurmd, and PropagateResourceLimitsExcept=MEMLOCK in slurm.conf"});
    }
    return found.findings(cluster);
}

/// A rank needs two descriptors per rank (a connection, and as many files), and 256 more.
std::vector<Finding> check_open_files(const Cluster& cluster) {
    constexpr int64_t kForFiles = 256;
    const int64_t wanted = 2 * static_cast<int64_t>(cluster.ranks.size()) + kForFiles;
    NodeFindings found("open files");
    for (const RankFacts& rank : cluster.ranks) {
        if (rank.open_files >= wanted) continue;
        found.add(rank.node,
                  {Severity::Warn,
                   fmt::format("limited to {} a process, and {} ranks may need {}", rank.open_files,
                               cluster.ranks.size(), wanted),
                   fmt::format("ulimit -n {} in the job script, or LimitNOFILE for slurmd", wanted)});
    }
    return found.findings(cluster);
}

/// A container's default of 64 MiB is too little: each rank has buffers in /dev/shm for every neighbour.
std::vector<Finding> check_shared_memory(const Cluster& cluster) {
    constexpr int64_t kBytesPerRank = 64 * kMebi;
    NodeFindings found("/dev/shm");
    for (const NodeFacts& node : cluster.nodes) {
        const int ranks = ranks_on(node.name, cluster);
        if (!node.shared_memory || ranks < 2 || node.shared_memory->free_bytes >= ranks * kBytesPerRank)
            continue;
        found.add(node.name,
                  {Severity::Warn,
                   fmt::format("{} MiB free, {} ranks want {}", node.shared_memory->free_bytes / kMebi, ranks,
                               ranks * kBytesPerRank / kMebi),
                   "remove what is left there, or give the container more (--shm-size)"});
    }
    return found.findings(cluster);
}

}  // namespace argosy::preflight
