// The last operations that this rank has submitted to its groups (FlightRecorder). If the job hangs, the
// watchdogs compare the operations of all ranks (root_cause.h), and each rank writes its own to a file
// (FlightFile, FORMAT.md).
//
// Streams. Ranks compare their operations stream by stream. The collectives of a group are one stream; the
// messages from one rank of the group to another are one, of sends on one side and of receives on the other.
// Operation n of a stream must be the same on all ranks of the stream.
//
// Cost of an operation and its end: 0.14 us for two locks and a clock (measured on one core of a Xeon).
// Memory is allocated only for a group, and for the first message to or from another rank.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/element_type.h"

namespace argosy::watch {

class FlightRecorder;

/// An operation of a group, as one of its ranks submits it.
struct FlightOp {
    enum class Way : uint8_t { Collective, Send, Receive };
    const char* kind = "";  // as messages name it: "all-gather"; a literal, or the result of kept()
    Way way = Way::Collective;
    int peer = -1;          // the root, or the other rank of a message, in the outermost group; -1: none
    int64_t elements = -1;  // of the larger of the rank's buffers; -1: the launch of a graph has none
    ElementType type = ElementType::UInt8;
};

/// InGraph: the operation was recorded into a graph and runs in each launch of the graph. The launches are
/// operations of their own.
enum class FlightState : uint8_t { UnderWay, Ended, InGraph };

/// Operations that were submitted together. REQUIRES: the recorder outlives this object.
struct FlightSpan {
    FlightRecorder* recorder = nullptr;  // null: no operations
    int64_t begin = 0, end = 0;          // numbers of the recorder's entries
    /// All these operations have ended. Any thread may call this.
    void set_ended() const;
};

/// The operations of a stream that a rank still holds, as rank 0 gets them.
struct StreamOps {
    struct One {
        double seconds_ago = 0;  // of the submission
        std::string what;        // "all-gather of 8192 bf16"
    };
    uint64_t key = 0;  // equal on all ranks of the stream
    std::string noun;   // "collective" or "message"
    std::string place;  // "over dp_shard", "from rank 0 to rank 1 over pp"
    int64_t first = 0;  // the number of the first operation
    std::vector<One> ops = {};
};
/// Throws std::exception for any text that is not of FlightRecorder::streams().
std::vector<StreamOps> parse_streams(const std::string& text);

/// Any thread may call all members.
class FlightRecorder {
  public:
    /// The number of operations that the recorder holds.
    static constexpr int64_t kMaxEntries = 1024;

    /// `rank` is this rank's number in the outermost group.
    explicit FlightRecorder(int rank) : rank_(rank) {}

    /// Returns the number of a new group. `members` are numbers in the outermost group. COLLECTIVE over
    /// `members`, in the same order.
    int open(const std::string& name, const std::vector<int>& members);

    /// Records an operation of group number `group`, and adds it to `span`.
    void add(int group, const FlightOp& op, FlightSpan& span, FlightState state = FlightState::UnderWay);
    /// Returns the same text with a lifetime as long as the recorder's.
    const char* kept(const std::string& text);

    /// The StreamOps of all streams, for rank 0.
    std::string streams() const;
    /// The content of the file. `hang` identifies the hang; it is the same for all ranks.
    std::string json(const std::string& hang, int num_ranks) const;

  private:
    friend struct FlightSpan;
    struct Group {
        std::string name, members;  // compress_ranks()
        uint64_t key;
        int collectives;                                        // number of the stream
        std::map<std::pair<FlightOp::Way, int>, int> messages;  // numbers of the streams, by peer
    };
    struct Stream {
        uint64_t key;
        int group;
        int sender = -1, receiver = -1;  // of messages
        int64_t count = 0;
    };
    struct Entry {
        FlightOp op;
        FlightState state;
        int stream;
        int64_t number;  // in the stream
        double at_seconds;
    };

    int stream_of(int group, const FlightOp& op);
    template <class Visit>
    void for_each_entry(Visit visit) const;

    const int rank_;
    mutable std::mutex mutex_;
    std::vector<Group> groups_;
    std::vector<Stream> streams_;
    std::map<std::pair<std::string, std::vector<int>>, int> num_groups_;  // by name and members
    std::array<Entry, kMaxEntries> entries_;                              // a ring
    int64_t num_entries_ = 0;                                             // added so far
    std::set<std::string> texts_;
};

/// The file of a rank's operations. A thread of its own writes it, because a file system may hang. The thread
/// may outlive this object. One thread calls all members.
class FlightFile {
  public:
    /// An empty folder: no file is written.
    FlightFile(std::filesystem::path folder, int rank) : folder_(std::move(folder)), rank_(rank) {}

    const std::filesystem::path& folder() const { return folder_; }
    /// Begins to write `text` to rank-<rank>.json in the folder, unless an earlier text is still being
    /// written. `finished` is called on the writing thread at the end. Returns whether it has begun.
    bool begin(std::string text, std::function<void()> finished);
    /// Whether the last text that was begun is written, or could not be written.
    bool is_written() const { return writing_ && writing_->done; }
    /// Why the file could not be written; empty: it was. REQUIRES: is_written().
    const std::string& error() const { return writing_->error; }

  private:
    struct Writing {
        std::string error;
        std::atomic<bool> done = false;
    };

    std::filesystem::path folder_;
    int rank_;
    std::shared_ptr<Writing> writing_;
};

}  // namespace argosy::watch
