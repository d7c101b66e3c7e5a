// A lane is one ordered channel between the GPUs of ranks: an NCCL communicator, the stream of all its
// operations, and the LaunchLine (queue of launches) that the watchdog reads.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/stream.h"
#include "nccl/communicator.h"
#include "watch/launch_line.h"

namespace argosy::watch {

class Lane {
  public:
    /// Makes the communicator on this thread's device. COLLECTIVE over all ranks that have the id; waits for
    /// them without a timeout. `rank` and `size` are numbers within the lane.
    Lane(const nccl::UniqueId& id, int size, int rank, std::shared_ptr<LaunchLine> its_line)
        : communicator(id, size, rank), line(std::move(its_line)) {}

    /// Throws RunError if an earlier operation has failed, unless the lane is aborted. Any thread may call
    /// this.
    void require_health();

    /// Aborts the operations under way, which would otherwise wait for ever if a peer is gone. Only the first
    /// call has an effect. Any thread may call this.
    void break_off();

    const cuda::Stream stream{cuda::Priority::High};  // normal priority would queue behind a matmul's blocks
    nccl::Communicator communicator;
    const std::shared_ptr<LaunchLine> line;

  private:
    std::mutex mutex_;
    bool broken_off_ = false;
};

}  // namespace argosy::watch
