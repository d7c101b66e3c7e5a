// What a rank has put on one stream, launch by launch in the order in which they end: what its watchdog looks
// at from a thread of its own, and tells the watchdogs of other ranks. The same line has the same key and the
// same numbers on every rank that takes part in it. What becomes part of a graph is recorded here once, and
// under way in each launch of the graph; launches of graphs are numbered over all lines, from 1.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/event_pool.h"
#include "comm/graph_progress.h"

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
    /// Which one: on this line outside of graphs, or on this line in that launch of a graph. From 0.
    struct Place {
        int64_t graph = 0;  // 0: outside
        int64_t number = 0;
        auto operator<=>(const Place&) const = default;
    };

    // By the thread that launches.
    /// This rank comes to its next launch: the call may take its time.
    void begin(Work work);
    /// The call has returned; the launch begins and ends at these.
    void launched(PooledEvent begin, PooledEvent end);
    /// The call has returned, and nothing else was waited for.
    void returned();

    // By the same thread, for what becomes part of a graph.
    /// The next operation of the graph of that number; `begun` is set when the GPU comes to it.
    void record(uint64_t graph, Work work, const GraphMark* begun);
    /// The call has returned; `done` is set when the operation has ended.
    void recorded(uint64_t graph, const GraphMark* done);
    /// The call comes that launches a graph.
    void graph_begins(int64_t launch);
    /// It has returned; the graph ends at this.
    void graph_launched(PooledEvent end);

    /// Where this rank is.
    struct Standing {
        std::string key, name;
        std::vector<int> members;
        /// Launches outside of graphs that this rank has come to: its host, and no graph keeps its GPU.
        int64_t num_begun = 0;
        /// Of graphs: those before this one are through, of it the GPU has come to so many operations.
        Place graph = {1, 0};
        Work last;  // that it has come to
        Place last_place = {0, -1};
        double seconds_since_last = 0;
        /// The oldest that has not ended, if the GPU has come to it or its call has not returned.
        struct UnderWay {
            Place place;
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
        const GraphMark *begun, *done;  // done: none until its call returns
    };
    /// What this rank came to, and when that was seen.
    struct Last {
        Work work;
        Place place = {0, -1};
        double at_seconds = 0;
    };
    struct GraphLaunch {
        int64_t launch;
        int64_t num_begun;  // outside of graphs until then
        Last last;          // likewise
        PooledEvent end;    // none until its call returns
    };

    void drop_ended_launches();
    void drop_ended_graphs();
    bool oldest_has_begun();
    const Recorded* see_graph();
    void look_at_graphs(double elapsed_seconds, Standing& standing);
    const Recorded* come_to(int64_t launch, int64_t* number) const;

    const std::string key_, name_;
    const std::vector<int> members_;
    std::mutex mutex_;
    std::deque<Launch> launches_;  // that have not ended, oldest first
    int64_t num_begun_ = 0;
    Last last_;
    double waited_seconds_ = 0;  // of the oldest

    std::map<uint64_t, std::vector<Recorded>> recorded_;  // by graph; what is gone is never set again
    std::deque<GraphLaunch> graphs_;                      // that have not ended, oldest first
    int64_t num_graphs_ = 0;                              // the last one's number
    Last seen_;                                           // within a graph
    Place waits_at_;
    double graph_waited_seconds_ = 0;  // there
};

}  // namespace argosy::comm
