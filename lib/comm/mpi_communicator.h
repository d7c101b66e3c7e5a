// The MPI backend: tensors in host memory, non-blocking collectives, waits bounded in time.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "mpi/comm.h"

namespace argosy::comm {

struct MpiOptions {
    double timeout_seconds = 100;  // a wait that takes longer names itself and fails
    bool synchronous_sends =
        false;  // sends complete only once received: proves that a schedule needs no buffering
};

class MpiCommunicator : public Communicator {
  public:
    MpiCommunicator(mpi::Comm comm, std::string name, MpiOptions options = {});

    int rank() const override { return rank_; }
    int size() const override { return size_; }
    std::unique_ptr<Communicator> subgroup(std::span<const int> ranks, std::string name) const override;

    using Communicator::submit;
    Pending submit(std::span<const Op> ops) override;

  private:
    mpi::Request start(const Op& op) const;
    std::string describe(std::span<const Op> ops) const;

    mpi::Comm comm_;
    MpiOptions options_;
    int rank_, size_;
    std::vector<int> members_;  // numbers in the outermost group, for messages
    int64_t num_submitted_ = 0;
};

}  // namespace argosy::comm
