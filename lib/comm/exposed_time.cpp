#include "comm/exposed_time.h"

#include <utility>

namespace argosy::comm {

void ExposedTime::collect() {
    while (!waits_.empty() && waits_.front().after->done()) {
        seconds_ += cuda::Event::seconds_between(*waits_.front().before, *waits_.front().after);
        waits_.pop_front();
    }
}

void ExposedTime::collect_recorded(const std::function<int64_t(uint64_t)>& num_launches) {
    for (auto& [graph, recorded] : recorded_) {
        const int64_t all = num_launches(graph), launches = all - std::exchange(recorded.num_counted, all);
        if (launches == 0) continue;
        for (const auto& [before, after] : recorded.waits) {
            seconds_ += static_cast<double>(launches) * cuda::Event::seconds_between(*before, *after);
        }
    }
}

}  // namespace argosy::comm
