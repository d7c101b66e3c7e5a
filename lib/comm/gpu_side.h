// What all groups that come from one share on a GPU: events, the graph of a step, and the lanes that the
// watchdog looks at. What is not said to be for one thread any may call.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/event_pool.h"
#include "comm/graph_progress.h"
#include "comm/lane.h"
#include "nccl/communicator.h"

namespace argosy::comm {

class GpuSide {
  public:
    /// Those that only mark a point, and those between which time is measured.
    const EventPool marks{cuda::Timing::Off}, clocks{cuda::Timing::On};

    /// A line of this rank, of which `members` have the others; made in the same order on all of them.
    std::shared_ptr<LaunchLine> open_line(const std::string& name, const std::vector<int>& members);
    /// REQUIRES: this thread records no graph.
    void add(const std::shared_ptr<Lane>& lane);

    /// Those that still are.
    std::vector<std::shared_ptr<LaunchLine>> lines() const;
    std::vector<std::shared_ptr<Lane>> lanes() const;

    // By the thread that works on the GPU.
    /// The lane's stream comes to an operation of the graph of this number, which is being recorded.
    void record(const Lane& lane, LaunchLine::Work work, uint64_t graph);
    /// And to its end.
    void recorded(const Lane& lane, uint64_t graph);
    /// A graph is to be put on `stream`.
    void graph_begins(const cuda::StreamView& stream);
    /// The one of this number was, up to `end`.
    void graph_launched(uint64_t graph, PooledEvent end);
    /// REQUIRES: no graph is being recorded.
    bool graph_under_way();
    /// How often the graph of that number has been launched.
    int64_t num_launches(uint64_t graph) const;

    /// The watchdog ends the process: what comes from the GPU from now on may be wrong.
    void end() { ends_ = true; }
    /// Does not return in that case. For the thread that works on the GPU, before it goes by what it has
    /// seen.
    void require_going_on() const;
    /// What `calls` returns. What fails in it once the watchdog has ended NCCL is no error of its own, nor is
    /// what another rank's end makes fail, unless nobody else has a word about it.
    template <class Calls>
    auto while_going_on(const Calls& calls) const {
        try {
            return calls();
        } catch (const nccl::PeerError&) {
            let_others_speak();
            throw;
        } catch (...) {
            require_going_on();  // the watchdog's message is the one that counts
            throw;
        }
    }

  private:
    /// Returns after a while, if this process still is.
    void let_others_speak() const;

    std::atomic<bool> ends_ = false;
    PooledEvent graph_end_;  // of the last launch
    int64_t num_launches_ = 0;
    std::map<uint64_t, int64_t> num_launches_of_;  // by graph
    std::optional<GraphProgress> progress_;        // none before the first lane
    mutable std::mutex mutex_;
    std::vector<std::weak_ptr<LaunchLine>> lines_;
    std::vector<std::weak_ptr<Lane>> lanes_;
    std::map<std::pair<std::string, std::vector<int>>, int> num_lines_;
};

}  // namespace argosy::comm
