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

    /// COLLECTIVE, once a step: whether a rank had the signal by the time of the call one step ago. The
    /// answer is the same on all ranks, and costs no waiting, since it was asked for a step earlier.
    bool agreed();

    /// The signal's number where this rank got one, else 0.
    static int received();

  private:
    std::unique_ptr<comm::Communicator> control_;  // apart from the data's, so that it can overtake nothing
    at::Tensor wish_;
    comm::Pending asking_;
};

}  // namespace argosy::train
