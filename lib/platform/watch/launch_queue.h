// The operations between GPUs that a rank has put on one stream (LaunchQueue), and how far the GPU has come,
// also within CUDA graphs (GraphProgress). A thread of the rank's watchdog reads the queues, and the
// watchdog reports them to rank 0's watchdog.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cuda/memory.h"
#include "cuda/stream.h"
#include "watch/flight_recorder.h"

namespace argosy::watch {

/// The value of a mark: the number of a launch modulo 65535, plus 1; 0 if the mark is not set yet. Two
/// launches whose numbers differ by less than 65535 have different marks.
using GraphMark = uint16_t;

/// Shows how far a GPU has come in a graph. Each operation of the graph has marks in pinned host memory; when
/// the GPU reaches a mark, it writes the number of the launch there. A reader needs neither a CUDA call nor
/// an event (a graph cannot contain one), and several launches may follow each other without the host. One
/// thread calls all members, except that any thread may call is_set_by().
class GraphProgress {
  public:
    /// Allocates on this thread's device. REQUIRES: this thread records no graph; the same holds for
    /// begin_launch().
    GraphProgress();

    /// Work that is put on `stream` between this call and the next begin_launch(), such as a graph, sets its
    /// marks to the number `launch`. Launches are numbered from 1.
    void begin_launch(int64_t launch, const cuda::StreamView& stream);

    /// Adds a mark to the graph that captures `stream`. Each launch of the graph sets the mark when the GPU
    /// reaches this point.
    const GraphMark* add_mark(const cuda::Stream& stream);

    /// Whether `launch` was the last launch that set the mark.
    static bool is_set_by(const GraphMark* mark, int64_t launch);

  private:
    void require_room();

    std::vector<cuda::PinnedMemory> blocks_;  // new marks come from the last block
    size_t num_taken_ = 0;                    // marks taken from the last block
    cuda::DeviceMemory values_, current_;     // all values of a mark; the value of the last launch
};

/// The launches on a stream, in the order in which they end. A queue has the same key, and its launches have
/// the same numbers, on all of its ranks. An operation that becomes part of a graph is recorded here once,
/// and is under way in each launch of the graph. Launches of graphs are numbered from 1, over all queues
/// together.
class LaunchQueue {
  public:
    /// `name` is the name of the mesh axis, for messages. `members` are rank numbers in the outermost group.
    /// `serial` distinguishes queues with the same name and members.
    LaunchQueue(std::string name, std::vector<int> members, int serial);

    /// The operation of a launch: its kind ("all-reduce", as messages name it) and its number of elements.
    struct Work {
        std::string kind;
        int64_t elements = 0;
        bool operator==(const Work&) const = default;
    };
    /// Identifies an operation of this queue: operation `number` (from 0) outside of graphs, or within one
    /// launch of a graph.
    struct LaunchId {
        int64_t graph = 0;  // number of the graph's launch; 0: outside of graphs
        int64_t number = 0;
        auto operator<=>(const LaunchId&) const = default;
    };

    // The thread that launches calls the following three members.
    /// Call this before the launching call, which may block for a while. `flight`: the operations in the
    /// flight recorder. They end with the launch.
    void begin(Work work, const FlightSpan& flight = {});
    /// Call this after the launching call has returned. `begin` and `end` mark the begin and the end of the
    /// launch.
    void launched(cuda::PooledEvent begin, cuda::PooledEvent end);
    /// Call this in place of launched() if only the launching call is to be watched. Drops the launch.
    void returned();

    // The same thread calls the following four members, for operations that become part of a graph.
    /// Adds the next operation of graph number `graph`. The GPU sets `begun` when it reaches the operation.
    void record(uint64_t graph, Work work, const GraphMark* begun);
    /// Call this after the recording call has returned. The GPU sets `done` when the operation has ended.
    void recorded(uint64_t graph, const GraphMark* done);
    /// Call this before the call that launches a graph. `launch` is the number of the launch, and `flight`
    /// has it in the flight recorder.
    void graph_begins(int64_t launch, const FlightSpan& flight = {});
    /// Call this after the call that launches the graph has returned. `end` marks the end of the launch.
    void graph_launched(cuda::PooledEvent end);

    /// The state of this queue on this rank.
    struct QueueState {
        uint64_t key = 0;  // equal on all members
        std::string name;
        std::vector<int> members;
        /// Number of launches outside of graphs that the host has reached. While a launch of a graph has not
        /// ended, only the launches before it count.
        int64_t num_begun = 0;
        /// Progress in graphs: the launches of graphs before number `graph.graph` have ended, and the GPU has
        /// reached `graph.number` operations of launch `graph.graph`.
        LaunchId graph = {1, 0};
        Work last;  // the last launch that this rank has reached
        LaunchId last_id = {0, -1};
        double seconds_since_last = 0;
        /// The oldest launch that has not ended, if the GPU has reached it or its call has not returned.
        struct UnderWay {
            LaunchId id;
            Work work;
            double waited_seconds = 0;  // time for which the launch has been in this state
        };
        std::optional<UnderWay> under_way;
    };
    /// Returns the state, and adds the `elapsed_seconds` since the last poll() to the waiting times. Only the
    /// watchdog's thread that queries CUDA calls this.
    QueueState poll(double elapsed_seconds);

  private:
    struct Launch {
        int64_t number;
        Work work;
        FlightSpan flight;
        cuda::PooledEvent begin, end;  // none until its call returns
    };
    struct Recorded {
        Work work;
        const GraphMark *begun, *done;  // done: null until the recording call returns
    };
    /// The last launch that this rank has reached, and the time at which that was seen.
    struct Last {
        Work work;
        LaunchId id = {0, -1};
        double at_seconds = 0;
    };
    struct GraphLaunch {
        int64_t launch;
        int64_t num_begun;  // launches outside of graphs before this one
        Last last;          // the last launch before this one
        FlightSpan flight;
        cuda::PooledEvent end;  // none until its call returns
    };

    void drop_ended_launches();
    void drop_ended_graphs();
    bool oldest_has_begun();
    const Recorded* poll_oldest_graph();
    void poll_graphs(double elapsed_seconds, QueueState& state);
    const Recorded* last_begun(int64_t launch, int64_t* number) const;

    const uint64_t key_;
    const std::string name_;
    const std::vector<int> members_;
    std::mutex mutex_;
    std::deque<Launch> launches_;  // launches outside of graphs that have not ended, oldest first
    int64_t num_begun_ = 0;
    Last last_;
    double waited_seconds_ = 0;  // of the oldest launch

    /// Operations by graph. Entries of destroyed graphs stay, but their marks are never set again.
    std::map<uint64_t, std::vector<Recorded>> recorded_;
    std::deque<GraphLaunch> graphs_;  // launches of graphs that have not ended, oldest first
    int64_t num_graphs_ = 0;          // number of the last launch of a graph
    Last seen_;                       // the last operation reached within a graph
    LaunchId waited_id_;
    double graph_waited_seconds_ = 0;  // time waited at waited_id_
};

}  // namespace argosy::watch
