// How long the stream of computation stood still at the waits of a group: the time between two events around
// each wait, added up once both are done, so that the host never waits for a figure. One thread.
#pragma once

#include <deque>

#include "comm/event_pool.h"

namespace argosy::comm {

class ExposedTime {
  public:
    /// A wait that lies between two events of one stream.
    void add(PooledEvent before, PooledEvent after) {
        waits_.push_back({std::move(before), std::move(after)});
    }

    /// Adds up the waits that have ended. REQUIRES: this thread records no graph.
    void collect();

    /// Of the waits that have ended by the last collect().
    double seconds() const { return seconds_; }

  private:
    struct Wait {
        PooledEvent before, after;
    };
    std::deque<Wait> waits_;  // in the order of the stream
    double seconds_ = 0;
};

}  // namespace argosy::comm
