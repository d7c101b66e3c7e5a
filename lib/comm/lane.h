// One ordered way between ranks' GPUs: a communicator of NCCL, the stream that all its operations take, and
// the line that its launches stand in.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/launch_line.h"
#include "cuda/stream.h"
#include "nccl/communicator.h"

namespace argosy::comm {

struct Lane {
    /// COLLECTIVE over all that have the id, which waits for them without a limit of time; on this thread's
    /// device. `rank` and `size` are the lane's own.
    Lane(const nccl::UniqueId& id, int size, int rank, std::shared_ptr<LaunchLine> its_line)
        : communicator(id, size, rank), line(std::move(its_line)) {}

    const cuda::Stream stream;
    nccl::Communicator communicator;
    const std::shared_ptr<LaunchLine> line;
};

}  // namespace argosy::comm
