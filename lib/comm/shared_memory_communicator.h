// The backend of groups within one node. Collectives go through shared memory and need no attention of a peer
// that has submitted. Sends and receives go through MPI, because they connect pipeline stages, which are
// usually on different nodes.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "comm/communicator.h"
#include "comm/exchange.h"
#include "comm/group.h"
#include "comm/mpi_communicator.h"

namespace argosy::comm {

class SharedMemoryCommunicator : public Communicator {
  public:
    /// `exchange` belongs to the same group.
    SharedMemoryCommunicator(std::shared_ptr<const Group> group, std::shared_ptr<Exchange> exchange);

    int rank() const override { return group_->rank(); }
    int size() const override { return group_->size(); }
    std::unique_ptr<Communicator> subgroup(std::span<const int> ranks, std::string name) const override;

    using Communicator::submit;
    Pending submit(std::span<const Op> ops) override;

  private:
    std::shared_ptr<const Group> group_;
    std::shared_ptr<Exchange> exchange_;
    MpiCommunicator messages_;
    int64_t num_submitted_ = 0;
};

}  // namespace argosy::comm
