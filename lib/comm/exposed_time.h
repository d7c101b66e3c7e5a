// Measures how long the compute stream stood still at the waits of a group. Each wait lies between two
// events. The time between them is added up once both are done, so the host never waits for a measurement.
// Each launch of a graph records the events of its waits anew, and collect_recorded() adds them up after the
// launch. One thread calls all members.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "cuda/stream.h"

namespace argosy::comm {

class ExposedTime {
  public:
    /// Adds a wait that lies between two events of one stream.
    void add(cuda::PooledEvent before, cuda::PooledEvent after) {
        waits_.push_back({std::move(before), std::move(after)});
    }

    /// Adds a wait within graph number `graph`, which is being recorded.
    void add_recorded(uint64_t graph, cuda::PooledEvent before, cuda::PooledEvent after) {
        recorded_[graph].waits.push_back({std::move(before), std::move(after)});
    }

    /// Adds up the waits that have ended and are not part of a graph. REQUIRES: this thread records no graph.
    void collect() {
        while (!waits_.empty() && waits_.front().after->done()) {
            seconds_ += waits_.front().seconds();
            waits_.pop_front();
        }
    }
    /// Adds up the waits within graphs. `num_launches` returns how often a graph has been launched so far.
    /// Only the last launch of a graph is measured; its waits count for every launch since the last call of
    /// collect_recorded(). REQUIRES: all launches of graphs have ended, and this thread records no graph.
    void collect_recorded(const std::function<int64_t(uint64_t graph)>& num_launches) {
        for (auto& [graph, recorded] : recorded_) {
            const int64_t all = num_launches(graph);
            const int64_t launches = all - std::exchange(recorded.num_counted, all);
            if (launches == 0) continue;
            for (const Wait& wait : recorded.waits)
                seconds_ += static_cast<double>(launches) * wait.seconds();
        }
    }

    /// Total of all waits that have been added up so far.
    double seconds() const { return seconds_; }

  private:
    struct Wait {
        cuda::PooledEvent before, after;
        double seconds() const { return cuda::Event::seconds_between(*before, *after); }
    };
    std::deque<Wait> waits_;  // in the order of the stream
    struct Recorded {
        std::vector<Wait> waits;
        int64_t num_counted = 0;  // number of launches added up so far
    };
    std::map<uint64_t, Recorded> recorded_;  // by graph
    double seconds_ = 0;
};

}  // namespace argosy::comm
