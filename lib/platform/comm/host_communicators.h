// The backends for tensors in the host's memory: MPI for any group, and shared memory for the collectives of
// a group within one node.
#pragma once

#include <memory>
#include <span>

#include "comm/communicator.h"
#include "comm/exchange.h"
#include "comm/group.h"
#include "mpi/comm.h"

namespace argosy::comm {

/// Uses MPI's non-blocking calls, and waits with a timeout. No data moves while a rank computes, because Open
/// MPI makes progress only within its calls.
class MpiCommunicator : public GroupCommunicator {
  public:
    using GroupCommunicator::GroupCommunicator;

    using Communicator::submit;
    Pending submit(std::span<const Op> ops) override;

    /// Throws RunError for an operation that this backend cannot start.
    void check(const Op& op) const;

  private:
    mpi::Request start(const Op& op) const;

    int64_t num_submitted_ = 0;
};

/// Collectives go through shared memory. A peer that has submitted need not attend to them; exchange.h has
/// the exceptions. Sends and receives go through MPI, because they connect pipeline stages, which are usually
/// on different nodes.
class SharedMemoryCommunicator : public GroupCommunicator {
  public:
    /// `exchange` belongs to the same group.
    SharedMemoryCommunicator(std::shared_ptr<const Group> group, std::shared_ptr<Exchange> exchange);

    using Communicator::submit;
    Pending submit(std::span<const Op> ops) override;

  private:
    std::shared_ptr<Exchange> exchange_;
    MpiCommunicator messages_;
    int64_t num_submitted_ = 0;
};

}  // namespace argosy::comm
