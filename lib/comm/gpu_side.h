// What all groups that come from one share on a GPU: events, and the lanes that the watchdog looks at. Any
// thread may call it.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/event_pool.h"
#include "comm/lane.h"

namespace argosy::comm {

class GpuSide {
  public:
    /// Those that only mark a point, and those between which time is measured.
    const EventPool marks{cuda::Timing::Off}, clocks{cuda::Timing::On};

    /// A line of this rank, of which `members` have the others; made in the same order on all of them.
    std::shared_ptr<LaunchLine> open_line(const std::string& name, const std::vector<int>& members);
    void add(const std::shared_ptr<Lane>& lane);

    /// Those that still are.
    std::vector<std::shared_ptr<LaunchLine>> lines() const;
    std::vector<std::shared_ptr<Lane>> lanes() const;

    /// A graph was put on the current stream, up to `end`. By the thread that works on the GPU, as the next.
    void graph_launched(PooledEvent end);
    /// How many of them have ended. REQUIRES: no graph is being recorded.
    int64_t num_graphs_ended();

    /// The watchdog ends the process: what comes from the GPU from now on may be wrong.
    void end() { ends_ = true; }
    /// Does not return in that case. For the thread that works on the GPU, before it goes by what it has
    /// seen.
    void require_going_on() const;

  private:
    std::atomic<bool> ends_ = false;
    PooledEvent graph_end_;  // of the last one
    int64_t num_graphs_ = 0;
    mutable std::mutex mutex_;
    std::vector<std::weak_ptr<LaunchLine>> lines_;
    std::vector<std::weak_ptr<Lane>> lanes_;
    std::map<std::pair<std::string, std::vector<int>>, int> num_lines_;
};

}  // namespace argosy::comm
