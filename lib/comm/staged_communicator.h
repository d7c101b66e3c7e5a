// The backend for GPUs without NCCL between them: tensors on a GPU are copied to the host's memory, sent by
// the group's host backend, and copied back. The copies are slow: the host waits for the GPU in submit() and
// in wait(). Operations cannot be part of a graph.
#pragma once

#include <memory>
#include <span>

#include "comm/communicator.h"
#include "comm/group.h"

namespace argosy::comm {

class StagedCommunicator : public GroupCommunicator {
  public:
    StagedCommunicator(std::shared_ptr<const Group> group, std::unique_ptr<Communicator> host);

    bool recordable() const override { return false; }
    using Communicator::submit;
    Pending submit(std::span<const Op> ops) override;

    double exposed_seconds() const override {
        return Communicator::exposed_seconds() + host_->exposed_seconds();
    }

  private:
    std::unique_ptr<Communicator> host_;
};

}  // namespace argosy::comm
