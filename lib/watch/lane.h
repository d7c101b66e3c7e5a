// A lane is one ordered channel between the GPUs of ranks: an NCCL communicator, the stream of all its
// operations, and the LaunchQueue (queue of launches) that the watchdog reads.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/stream.h"
#include "nccl/communicator.h"
#include "watch/launch_queue.h"

namespace argosy::watch {

class Lane {
  public:
    /// Makes the communicator on this thread's device. COLLECTIVE over all ranks that have the id; waits for
    /// them without a timeout. `rank` and `size` are numbers within the lane.
    Lane(const nccl::UniqueId& id, int size, int rank, std::shared_ptr<LaunchQueue> its_queue)
        : communicator(id, size, rank), queue(std::move(its_queue)) {}

    /// Throws RunError if an earlier operation has failed, unless the lane is aborted. Any thread may call
    /// this.
    void require_health();

    /// Aborts the operations under way, which would otherwise wait for ever if a peer is gone. Only the first
    /// call has an effect. Any thread may call this.
    void abort();

    const cuda::Stream stream{cuda::Priority::High};  // normal priority would queue behind a matmul's blocks
    nccl::Communicator communicator;
    const std::shared_ptr<LaunchQueue> queue;

  private:
    std::mutex mutex_;
    bool aborted_ = false;
};

}  // namespace argosy::watch
