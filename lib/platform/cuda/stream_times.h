// Adds up times between events of a stream, each with a label: how long the stream stood still at waits, or
// computed. A time is added once its events are done, so the host never waits for a measurement. Each launch
// of a graph records its events anew, and collect_recorded() adds their times after the launch. One thread
// calls all members.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "cuda/stream.h"

namespace argosy::cuda {

class StreamTimes {
  public:
    /// Times that are added from now on have this label; the first one is 0.
    void set_label(int label) { label_ = label; }

    /// Adds the time between two events of one stream that graph number `graph` captures; 0: none does.
    void add(uint64_t graph, PooledEvent before, PooledEvent after) {
        const Interval interval{label_, std::move(before), std::move(after)};
        graph == 0 ? intervals_.push_back(interval) : recorded_[graph].intervals.push_back(interval);
    }

    /// Adds up the times that have ended and are not part of a graph. REQUIRES: this thread records no graph.
    void collect() {
        while (!intervals_.empty() && intervals_.front().after->done()) {
            add_up(intervals_.front(), 1);
            intervals_.pop_front();
        }
    }
    /// Adds up the times within graphs. `num_launches` returns how often a graph has been launched so far.
    /// Only the last launch of a graph is measured; its times count for every launch since the last call of
    /// collect_recorded(). REQUIRES: all launches of graphs have ended, and this thread records no graph.
    void collect_recorded(const std::function<int64_t(uint64_t graph)>& num_launches) {
        for (auto& [graph, recorded] : recorded_) {
            const int64_t all = num_launches(graph);
            const int64_t launches = all - std::exchange(recorded.num_counted, all);
            if (launches == 0) continue;
            for (const Interval& each : recorded.intervals) add_up(each, launches);
        }
    }

    /// The sum of all times that have been added up so far, and of those with a label.
    double seconds() const { return seconds_; }
    double seconds(int label) const {
        const auto found = by_label_.find(label);
        return found == by_label_.end() ? 0 : found->second;
    }

  private:
    struct Interval {
        int label;
        PooledEvent before, after;
    };
    void add_up(const Interval& interval, int64_t times) {
        const double seconds = Event::seconds_between(*interval.before, *interval.after);
        seconds_ += static_cast<double>(times) * seconds;
        by_label_[interval.label] += static_cast<double>(times) * seconds;
    }

    int label_ = 0;
    std::deque<Interval> intervals_;  // in the order of the stream
    struct Recorded {
        std::vector<Interval> intervals;
        int64_t num_counted = 0;  // number of launches added up so far
    };
    std::map<uint64_t, Recorded> recorded_;  // by graph
    double seconds_ = 0;
    std::map<int, double> by_label_;
};

}  // namespace argosy::cuda
