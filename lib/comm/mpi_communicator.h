// The MPI backend: tensors in the host's memory, non-blocking collectives, waits with a timeout. Nothing
// moves while the ranks compute, because Open MPI makes progress only within its calls.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "comm/communicator.h"
#include "comm/group.h"
#include "mpi/comm.h"

namespace argosy::comm {

class MpiCommunicator : public Communicator {
  public:
    explicit MpiCommunicator(std::shared_ptr<const Group> group);

    int rank() const override { return group_->rank(); }
    int size() const override { return group_->size(); }
    std::unique_ptr<Communicator> subgroup(std::span<const int> ranks, std::string name) const override;

    using Communicator::submit;
    Pending submit(std::span<const Op> ops) override;

    /// Throws RunError for an operation that it cannot start.
    void check(const Op& op) const;

  private:
    mpi::Request start(const Op& op) const;

    std::shared_ptr<const Group> group_;
    int64_t num_submitted_ = 0;
};

}  // namespace argosy::comm
