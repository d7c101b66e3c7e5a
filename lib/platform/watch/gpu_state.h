// State of this rank's GPU that a group and all its subgroups share: pools of events, the launches of graphs,
// and the lanes and launch queues that the watchdog reads. Any thread may call a member, unless its comment
// names one thread.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cuda/stream.h"
#include "nccl/comm.h"
#include "watch/launch_queue.h"

namespace argosy::watch {

/// A lane is one ordered channel between the GPUs of ranks: an NCCL communicator, the stream of all its
/// operations, and the LaunchQueue that the watchdog reads. A lane of copies between GPUs has no
/// communicator.
class Lane {
  public:
    /// Makes the communicator on this thread's device. COLLECTIVE over all ranks that have the id; waits for
    /// them without a timeout. `rank` and `size` are numbers within the lane; `max_channels` and
    /// `uses_copy_engines` are nccl::Comm's.
    Lane(const nccl::UniqueId& id, int size, int rank, int max_channels, bool uses_copy_engines,
         std::shared_ptr<LaunchQueue> its_queue)
        : copy_engines(uses_copy_engines),
          channels(max_channels),
          communicator(std::in_place, id, size, rank, max_channels, uses_copy_engines),
          queue(std::move(its_queue)) {}
    /// A lane of copies. `end_waits` ends the waits of its stream.
    Lane(std::shared_ptr<LaunchQueue> its_queue, std::function<void()> end_waits)
        : copy_engines(true), channels(0), queue(std::move(its_queue)), end_waits_(std::move(end_waits)) {}

    /// Throws RunError if an earlier operation has failed, unless the lane is aborted. Any thread may call
    /// this.
    void require_health();

    /// Aborts the operations under way: without this, they wait for ever if a peer is gone. Does not wait;
    /// see nccl::Comm::abort(). Only the first call has an effect. Any thread may call this. Of copies it
    /// ends the waits.
    std::future<void> abort();

    const bool copy_engines;
    // Only the thread that works on the GPU uses these two.
    int channels;  // that an operation takes, by their limit; 0 with registered memory and copy engines
    int num_submissions = 0;                          // not waited for
    const cuda::Stream stream{cuda::Priority::High};  // normal priority would queue behind a matmul's blocks
    std::optional<nccl::Comm> communicator;
    const std::shared_ptr<LaunchQueue> queue;

  private:
    std::function<void()> end_waits_;  // of copies
    std::mutex mutex_;
    bool aborted_ = false;
};

/// Aborts these lanes, and waits until NCCL is done with all of them, for at most nccl::kTimeToAbort.
void abort_all(const std::vector<std::shared_ptr<Lane>>& lanes);

class GpuState {
  public:
    /// Events that only mark a point on a stream (`marks`), and events that also record the time (`clocks`).
    const cuda::EventPool marks{cuda::Timing::Off}, clocks{cuda::Timing::On};

    /// Opens this rank's launch queue for a group. COLLECTIVE: every rank in `members`, in the same order.
    std::shared_ptr<LaunchQueue> open_queue(const std::string& name, const std::vector<int>& members);
    /// Lets the watchdog read the lane. REQUIRES: this thread records no graph.
    void add(const std::shared_ptr<Lane>& lane);

    /// The number of NCCL communicators that were made, the GPU memory that was taken meanwhile, the memory
    /// for transfers that NCCL has registered, or left alone (nccl::RegisteredMemory), and the pools that
    /// neighbours map.
    struct Made {
        int number = 0;
        int64_t bytes = 0, registered_bytes = 0, refused_bytes = 0, peer_bytes = 0;
    };
    // Only the thread that works on the GPU uses these two.
    Made made;
    int channels_under_way = 0;  // Communicator::channels_under_way()

    /// Operations were submitted to the lane, or waited for. A lane's operations run one after the other.
    void submitted(Lane& lane) {
        if (lane.num_submissions++ == 0) channels_under_way += lane.channels;
    }
    void awaited(Lane& lane) {
        if (--lane.num_submissions == 0) channels_under_way -= lane.channels;
    }

    /// The queues and lanes that still exist.
    std::vector<std::shared_ptr<LaunchQueue>> queues() const;
    std::vector<std::shared_ptr<Lane>> lanes() const;

    // Only the thread that works on the GPU calls the following six members.
    /// Call this before an operation on the lane's stream is recorded into graph number `graph`.
    void record(const Lane& lane, LaunchQueue::Work work, uint64_t graph);
    /// Call this after that operation has been recorded.
    void recorded(const Lane& lane, uint64_t graph);
    /// Call this before a graph is launched on `stream`. `flight` has the launch in the flight recorder.
    void graph_begins(const cuda::StreamView& stream, const FlightSpan& flight);
    /// Call this after graph number `graph` has been launched; `end` marks the end of the launch.
    void graph_launched(uint64_t graph, cuda::PooledEvent end);
    /// Whether the launch of a graph has not ended. REQUIRES: no graph is being recorded.
    bool graph_under_way();
    /// The number of times that graph number `graph` has been launched.
    int64_t num_launches(uint64_t graph) const;

    /// The watchdog calls this before it ends the process. Results of the GPU may be wrong from then on.
    void set_ending() { ending_ = true; }
    /// The watchdog says how long it takes at most from an error of NCCL to set_ending().
    void set_seconds_to_root_cause(double seconds) { seconds_to_root_cause_ = seconds; }
    /// Does not return after set_ending(). The thread that works on the GPU calls this before it uses a
    /// result or an error.
    void block_if_ending() const;
    /// Runs `calls` and returns their result. After set_ending(), this function does not return on an error,
    /// because the watchdog reports the root cause. A PeerError (another rank ended) is thrown only if no
    /// other rank reports the root cause first.
    template <class Calls>
    auto run_unless_ending(const Calls& calls) const {
        try {
            return calls();
        } catch (const nccl::PeerError&) {
            wait_for_root_cause();
            throw;
        } catch (...) {
            block_if_ending();
            throw;
        }
    }

  private:
    /// Sleeps long enough for another rank to report the root cause and end this process.
    void wait_for_root_cause() const;

    std::atomic<bool> ending_ = false;
    std::atomic<double> seconds_to_root_cause_ = 30;  // before the watchdog's thread has begun
    cuda::PooledEvent graph_end_;                     // of the last launch of a graph
    int64_t num_launches_ = 0;                        // of all graphs
    std::map<uint64_t, int64_t> num_launches_of_;     // by graph
    std::optional<GraphProgress> graph_progress_;     // none before the first lane
    mutable std::mutex mutex_;
    std::vector<std::weak_ptr<LaunchQueue>> queues_;
    std::vector<std::weak_ptr<Lane>> lanes_;
    std::map<std::pair<std::string, std::vector<int>>, int> num_queues_;  // by name and members
};

}  // namespace argosy::watch
