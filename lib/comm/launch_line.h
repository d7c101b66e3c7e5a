// What a rank has put on one stream, launch by launch in the order in which they end: what its watchdog looks
// at from a thread of its own, and tells the watchdogs of other ranks. The same line has the same key and the
// same numbers on every rank that takes part in it. What becomes part of a graph is recorded here once, and
// has a number of its own in each launch of the graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/event_pool.h"

namespace argosy::comm {

class LaunchLine {
  public:
    /// `name` is the mesh axis for messages, `members` are numbers in the outermost group, `serial` tells
    /// lines apart that have both in common.
    LaunchLine(std::string name, std::vector<int> members, int serial);

    /// What a launch is, for messages: "all-reduce", and how many elements.
    struct Work {
        std::string kind;
        int64_t elements = 0;
        bool operator==(const Work&) const = default;
    };

    // By the thread that launches.
    /// This rank comes to its next launch: the call may take its time.
    void begin(Work work);
    /// The call has returned; the launch begins and ends at these.
    void launched(PooledEvent begin, PooledEvent end);
    /// The call has returned, and nothing else was waited for.
    void returned();

    // By the same thread, for what becomes part of a graph: marks are GraphProgress's.
    /// The graph's next operation here; `begun` is set when the GPU comes to it.
    void record(Work work, const std::byte* begun);
    /// The call has returned; `done` is set when the operation has ended.
    void recorded(const std::byte* done);
    /// What is recorded will not be launched again.
    void forget_graph();
    /// The marks are cleared, and the call comes that launches the graph.
    void graph_begins();
    /// It has returned.
    void graph_launched();

    /// Where this rank is.
    struct Standing {
        std::string key, name;
        std::vector<int> members;
        /// Launches that this rank has come to; its GPU, where they are a graph's. The last of them:
        int64_t num_begun = 0;
        Work last;
        double seconds_since_last = 0;
        /// The oldest that has not ended, if the GPU has come to it or its call has not returned.
        struct UnderWay {
            int64_t number = 0;
            Work work;
            double waited_seconds = 0;  // that this has been so
        };
        std::optional<UnderWay> under_way;
    };
    /// By the watchdog's thread. `elapsed_seconds` since the last look count as waited.
    Standing look(double elapsed_seconds);

  private:
    struct Launch {
        int64_t number;
        Work work;
        PooledEvent begin, end;  // none until its call returns
    };

    struct Recorded {
        Work work;
        const std::byte *begun, *done;  // done: none until its call returns
    };
    /// Where this rank was.
    struct Last {
        Work work;
        double at_seconds = 0;
    };
    enum class Graph { None, Launching, Launched };

    void look_at_launches(double elapsed_seconds, Standing& standing);
    void look_at_graph(double elapsed_seconds, Standing& standing);

    const std::string key_, name_;
    const std::vector<int> members_;
    std::mutex mutex_;
    std::deque<Launch> launches_;  // that have not ended, oldest first
    int64_t num_begun_ = 0;
    Last last_;
    double waited_seconds_ = 0;  // of the oldest

    std::vector<Recorded> recorded_;  // what the graph has here
    Graph stage_ = Graph::None;
    int64_t first_number_ = 0;  // of the graph's last launch
    Last before_graph_;
    size_t num_done_ = 0;  // of those recorded, in that launch
    double graph_waited_seconds_ = 0;
    int64_t num_seen_ = 0;  // come to by the last look
    double seen_at_seconds_ = 0;
};

}  // namespace argosy::comm
