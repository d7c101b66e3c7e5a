// SIGTERM and SIGUSR1 as a wish to stop that all ranks agree on: Slurm sends them before a time limit or a
// preemption, and not to all ranks at the same moment.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "comm/communicator.h"

namespace argosy::train {

class StopSignal {
  public:
    /// COLLECTIVE. Takes over the two signals for the rest of the process.
    explicit StopSignal(const comm::Communicator& world);

    /// COLLECTIVE, at the end of each step: whether a rank had the signal by now; the same answer on all
    /// ranks.
    bool agreed();

  private:
    std::unique_ptr<comm::Communicator> control_;  // hosts among themselves, apart from the data's
};

}  // namespace argosy::train
