// The report of one rank's watchdog to rank 0's: a digest of a few lines, whatever the number of ranks. The
// digest says how far the rank has come on each of its launch queues, which waits are under way, and which
// launch the rank has reached last. A key identifies each group. Only a wait carries the members of its
// group, as compressed text (compress_ranks), because the group of all ranks has a member for each rank of
// the job.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "watch/launch_queue.h"

namespace argosy::watch {

/// Short text for a list of ranks: "5", "0:2*4" (0, 2, 4, 6), "0:1*4:16*3" (0..3, 16..19, 32..35). These
/// lists are nested progressions, as the groups of a mesh are. Any other list is written out: "1 2 4".
std::string compress_ranks(const std::vector<int>& ranks);
std::vector<int> expand_ranks(const std::string& text);

/// The action of an awaited rank that lets the wait end.
enum class Needs {
    Launch,     // reach the same launch; the GPUs run it without their hosts
    Attention,  // wait as well; transfers between hosts proceed only while both sides wait
};

/// The time limit of a wait, and the setting that sets it.
struct WaitLimit {
    double seconds = 0;        // finite
    const char* setting = "";  // a literal
};

/// One wait under way.
struct WaitReport {
    uint64_t key = 0;       // equal on all members that wait for the same group
    std::string operation;  // as messages name it
    std::string group;      // name of the group
    std::string members;    // compress_ranks()
    LaunchQueue::LaunchId id;
    LaunchQueue::Work work;
    Needs needs = Needs::Launch;
    double waited_seconds = 0, limit_seconds = 0;
    std::string limit_name;  // the setting that sets the limit
    bool is_late() const { return waited_seconds > limit_seconds; }
};

/// A wait for the file system that a rank goes on after (FileWait in base/time_limit.h): under way, or the
/// last long one that has ended.
struct StorageWait {
    std::string what;  // "writing 'run/metrics.jsonl'"
    double waited_seconds = 0, limit_seconds = 0;
    std::string limit_name;
    std::optional<double> seconds_since_end = {};  // none: the wait is under way
    /// A shorter wait says nothing, because most ranks read or write now and then.
    bool is_long() const { return waited_seconds >= 1; }
    bool is_late() const { return !seconds_since_end && waited_seconds > limit_seconds; }
};

/// How far a rank has come on one of its launch queues (LaunchQueue::QueueState).
struct QueueProgress {
    uint64_t key = 0;
    int64_t num_begun = 0;
    LaunchQueue::LaunchId graph;
    bool operator==(const QueueProgress&) const = default;
};

struct RankReport {
    std::vector<QueueProgress> queues;  // ascending by key
    std::vector<WaitReport> waits;
    std::optional<StorageWait> storage;
    std::string error;           // an error of NCCL or of the GPU's driver; empty: none
    std::string last_operation;  // the last launch that this rank has reached; empty: none
    double seconds_since_last = std::numeric_limits<double>::infinity();

    bool is_late() const;
    /// The report on launch queues, whose waits have this limit.
    static RankReport of(const std::vector<LaunchQueue::QueueState>& states, const WaitLimit& limit);

    /// Wire format: a JSON object. A key is absent where there is nothing to say. parse() throws
    /// std::exception on any other text.
    std::string text() const;
    static RankReport parse(const std::string& text);
};

/// "all-reduce over dp_shard (operation 12)", or "all-reduce over dp_shard (operation 12 of graph 3)" for an
/// operation within launch 3 of a graph. The launches of all graphs are counted together.
std::string operation_name(const std::string& kind, const std::string& group, LaunchQueue::LaunchId id);

/// The key of a group: a hash of its name, its members and its number among groups of the same name and
/// members. The key is equal on all ranks.
uint64_t group_key(const std::string& name, const std::vector<int>& members, int serial);

}  // namespace argosy::watch
