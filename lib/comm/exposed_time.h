// How long the stream of computation stood still at the waits of a group: the time between two events around
// each wait, added up once both are done, so that the host never waits for a figure. Waits within a graph are
// marked by each of its launches, and added up after each. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "comm/event_pool.h"

namespace argosy::comm {

class ExposedTime {
  public:
    /// A wait that lies between two events of one stream.
    void add(PooledEvent before, PooledEvent after) {
        waits_.push_back({std::move(before), std::move(after)});
    }

    /// The same within the graph of this number, which is being recorded. What is known of another is
    /// dropped.
    void add_recorded(uint64_t graph, PooledEvent before, PooledEvent after);

    // REQUIRES: this thread records no graph.
    /// Adds up the waits outside of graphs that have ended.
    void collect();
    /// And those within the last launch of the graph, of `num_graphs` so far, unless they are counted; of
    /// several since the last time, the last one counts. REQUIRES: it has ended.
    void collect_recorded(int64_t num_graphs);

    /// Of the waits that are added up.
    double seconds() const { return seconds_; }

  private:
    struct Wait {
        PooledEvent before, after;
    };
    std::deque<Wait> waits_;  // in the order of the stream
    std::vector<Wait> recorded_;
    uint64_t graph_ = 0;  // theirs
    int64_t num_graphs_ = 0;
    double seconds_ = 0;
};

}  // namespace argosy::comm
