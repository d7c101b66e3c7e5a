// How long the stream of computation stood still at the waits of a group: the time between two events around
// each wait, added up once both are done, so that the host never waits for a figure. Waits within a graph are
// marked by each of its launches, and added up after each. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "comm/event_pool.h"

namespace argosy::comm {

class ExposedTime {
  public:
    /// A wait that lies between two events of one stream.
    void add(PooledEvent before, PooledEvent after) {
        waits_.push_back({std::move(before), std::move(after)});
    }

    /// The same within the graph of this number, which is being recorded.
    void add_recorded(uint64_t graph, PooledEvent before, PooledEvent after) {
        recorded_[graph].waits.push_back({std::move(before), std::move(after)});
    }

    // REQUIRES: this thread records no graph.
    /// Adds up the waits outside of graphs that have ended.
    void collect();
    /// And those within graphs, of which `num_launches` says how often each has been launched so far. Known
    /// is its last launch, which counts for all of them that are new. REQUIRES: all have ended.
    void collect_recorded(const std::function<int64_t(uint64_t graph)>& num_launches);

    /// Of the waits that are added up.
    double seconds() const { return seconds_; }

  private:
    struct Wait {
        PooledEvent before, after;
    };
    std::deque<Wait> waits_;  // in the order of the stream
    struct Recorded {
        std::vector<Wait> waits;
        int64_t num_counted = 0;  // launches that are added up
    };
    std::map<uint64_t, Recorded> recorded_;  // by graph
    double seconds_ = 0;
};

}  // namespace argosy::comm
