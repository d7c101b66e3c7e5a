// One ordered way between ranks' GPUs: a communicator of NCCL, the stream that all its operations take, and
// the line that its launches stand in.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/launch_line.h"
#include "cuda/stream.h"
#include "nccl/communicator.h"

namespace argosy::comm {

class Lane {
  public:
    /// COLLECTIVE over all that have the id, which waits for them without a limit of time; on this thread's
    /// device. `rank` and `size` are the lane's own.
    Lane(const nccl::UniqueId& id, int size, int rank, std::shared_ptr<LaunchLine> its_line)
        : communicator(id, size, rank), line(std::move(its_line)) {}

    /// Throws RunError for what went wrong since; nothing once it is broken off. By any thread.
    void require_health();

    /// Ends what is under way here, which else is waited for, for ever where a peer is gone. The first time
    /// alone does anything. By any thread.
    void break_off();

    const cuda::Stream stream{cuda::Priority::High};  // or it would queue behind a product's blocks
    nccl::Communicator communicator;
    const std::shared_ptr<LaunchLine> line;

  private:
    std::mutex mutex_;
    bool broken_off_ = false;
};

}  // namespace argosy::comm
