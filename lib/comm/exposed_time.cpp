#include "comm/exposed_time.h"

namespace argosy::comm {

void ExposedTime::add_recorded(uint64_t graph, PooledEvent before, PooledEvent after) {
    if (graph_ != graph) recorded_.clear();
    graph_ = graph;
    recorded_.push_back({std::move(before), std::move(after)});
}

void ExposedTime::collect() {
    while (!waits_.empty() && waits_.front().after->done()) {
        seconds_ += cuda::Event::seconds_between(*waits_.front().before, *waits_.front().after);
        waits_.pop_front();
    }
}

void ExposedTime::collect_recorded(int64_t num_graphs) {
    if (num_graphs == num_graphs_) return;
    num_graphs_ = num_graphs;
    for (const auto& [before, after] : recorded_) seconds_ += cuda::Event::seconds_between(*before, *after);
}

}  // namespace argosy::comm
