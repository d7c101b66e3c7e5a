// Checks nodes as machines: clock, the folder that the run writes to, kernel settings, load by others.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/environment.h"
#include "base/units.h"
#include "preflight/diagnose.h"
#include "preflight/places.h"

namespace argosy::preflight {
namespace {

constexpr double kMega = 1e6;

/// The most serious problem of the folder, if any. `usual`: median write speed of all nodes (bytes/s).
std::optional<NodeFindings::Words> words_on(const FolderFacts& folder, double usual) {
    constexpr double kSlow = 50 * kMega, kFarSlower = 0.25;
    constexpr int64_t kLittleBytes = 10 * kGibi;
    using Words = NodeFindings::Words;
    if (!folder.problem.empty()) {
        return Words{Severity::Fail, fmt::format("{}: {}", folder.path, folder.problem),
                     "mount it there, make room, or set job.dump_folder"};
    }
    if (folder.space.free_bytes < kLittleBytes) {
        return Words{Severity::Warn,
                     fmt::format("{} has {} GiB free", folder.path, folder.space.free_bytes / kGibi),
                     "make room for checkpoints: weights and the optimizer's state"};
    }
    if (folder.bytes_per_second < kFarSlower * usual) {
        return Words{Severity::Warn,
                     fmt::format("{} takes less than a quarter of the {:.0f} MB/s that other nodes write",
                                 folder.path, usual / kMega),
                     "look at the node's way to the file system"};
    }
    if (folder.bytes_per_second < kSlow) {
        return Words{Severity::Warn,
                     fmt::format("{} takes less than {:.0f} MB/s: checkpoints will wait for it", folder.path,
                                 kSlow / kMega),
                     "set job.dump_folder to a faster file system"};
    }
    return std::nullopt;
}

const NodeFacts* node_named(const std::string& name, const Cluster& cluster) {
    const auto node = std::ranges::find(cluster.nodes, name, &NodeFacts::name);
    return node == cluster.nodes.end() ? nullptr : &*node;
}

bool fabric_between_nodes(const Cluster& cluster) {
    return cluster.nodes.size() > 1 && std::ranges::any_of(cluster.nodes, [](const NodeFacts& node) {
               return std::ranges::any_of(node.adapter_ports, &AdapterPort::active);
           });
}

/// Adds one finding for each harmful value that ranks have.
void apply(const SlowSetting& setting, const Cluster& cluster, std::vector<Finding>& findings) {
    if (!setting.matters({cluster.ranks.size() > cluster.nodes.size(), fabric_between_nodes(cluster)}))
        return;
    std::map<std::string, std::vector<int>> ranks_by_value;
    for (const RankFacts& rank : cluster.ranks) {
        const Variable* variable = rank.variable(setting.variable);
        if (!variable || !setting.holds(variable->value)) continue;
        ranks_by_value[describe(*variable)].push_back(rank.rank);
    }
    for (const auto& [value, ranks] : ranks_by_value) {
        findings.push_back(
            {.severity = setting.cost == SlowSetting::Cost::Ruins ? Severity::Fail : Severity::Warn,
             .check = setting.variable,
             .where = describe_ranks(ranks, cluster),
             .what = fmt::format("{}: {}", value, setting.why),
             .remedy = setting.remedy});
    }
}

}  // namespace

std::vector<Finding> check_clocks(const Cluster& cluster) {
    constexpr double kMaxSeconds = 1, kMinute = 60, kHour = 3600;
    NodeFindings found("clocks");
    for (size_t rank = 0; rank < cluster.clock_offsets.size(); ++rank) {
        const double offset = cluster.clock_offsets[rank], size = std::abs(offset);
        if (size <= kMaxSeconds) continue;
        // The text has no number, so that similar nodes make one finding.
        const char* const about = size < kMinute ? "seconds" : size < kHour ? "minutes" : "hours";
        found.add(cluster.ranks[rank].node,
                  {Severity::Warn,
                   fmt::format("{} {} rank 0's clock: logs and times of files do not agree", about,
                               offset > 0 ? "ahead of" : "behind"),
                   "see that chronyd or ntpd runs there"});
    }
    return found.findings(cluster);
}

std::vector<Finding> check_dump_folder(const Cluster& cluster) {
    std::vector<double> speeds;
    for (const NodeFacts& node : cluster.nodes) {
        if (node.dump_folder && node.dump_folder->problem.empty()) {
            speeds.push_back(node.dump_folder->bytes_per_second);
        }
    }
    NodeFindings found("dump folder");
    for (const NodeFacts& node : cluster.nodes) {
        if (!node.dump_folder) continue;
        const auto words = words_on(*node.dump_folder, upper_median(speeds));
        if (words) found.add(node.name, *words);
    }
    return found.findings(cluster);
}

/// "always" and "madvise" give programs huge pages, by default or on request; "never" denies them.
std::vector<Finding> check_huge_pages(const Cluster& cluster) {
    NodeFindings found("transparent huge pages");
    for (const NodeFacts& node : cluster.nodes) {
        if (node.huge_pages != "never") continue;
        found.add(node.name, {Severity::Warn, "never: tensors in host memory are scattered over small pages",
                              "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"});
    }
    return found.findings(cluster);
}

std::vector<Finding> check_governors(const Cluster& cluster) {
    NodeFindings found("CPU governor");
    for (const NodeFacts& node : cluster.nodes) {
        const auto slow = node.governors.find("powersave");
        if (slow == node.governors.end()) continue;
        found.add(node.name,
                  {Severity::Warn, fmt::format("{} of {} CPUs by powersave", slow->second, node.num_cpus),
                   "cpupower frequency-set -g performance"});
    }
    return found.findings(cluster);
}

/// High load comes from other processes: the ranks have only just started. The load of an earlier job fades
/// within a minute or two.
std::vector<Finding> check_load(const Cluster& cluster) {
    constexpr double kMuch = 1.5;
    NodeFindings found("load");
    for (const NodeFacts& node : cluster.nodes) {
        if (!node.load || node.num_cpus == 0 || *node.load <= kMuch * node.num_cpus) continue;
        found.add(node.name, {Severity::Warn, "more processes want to run than the node has CPUs",
                              "see what a job before, or somebody else, has left running"});
    }
    return found.findings(cluster);
}

std::vector<Finding> check_free_memory(const Cluster& cluster) {
    constexpr double kLittle = 0.5;
    std::vector<double> free;
    for (const NodeFacts& node : cluster.nodes) {
        if (node.available_memory_bytes) free.push_back(static_cast<double>(*node.available_memory_bytes));
    }
    const double usual = upper_median(free);
    NodeFindings found("host memory");
    for (const NodeFacts& node : cluster.nodes) {
        if (!node.available_memory_bytes) continue;
        const auto own = static_cast<double>(*node.available_memory_bytes);
        if (own >= kLittle * usual) continue;
        found.add(node.name, {Severity::Warn,
                              fmt::format("less than half of the {:.0f} GiB that are free on other nodes",
                                          usual / kGibi),
                              "see what is left in memory, or in /dev/shm and /tmp"});
    }
    return found.findings(cluster);
}

// Checks a node's limits for its ranks: locked memory, open files, shared memory.

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

// Checks variables that cost speed or hide the fabric, whatever their values on other ranks. The table is in
// base/environment.h.

std::vector<Finding> check_single_variables(const Cluster& cluster) {
    std::vector<Finding> findings;
    for (const SlowSetting& setting : slow_settings()) apply(setting, cluster, findings);
    return findings;
}

}  // namespace argosy::preflight
