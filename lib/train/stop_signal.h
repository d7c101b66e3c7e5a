// How all ranks agree, at the end of each step, whether to stop: SIGTERM and SIGUSR1, which Slurm sends
// before a time limit or a preemption, and not to all ranks at the same moment; or a rank's clock
// (run_limits.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "comm/communicator.h"

namespace argosy::train {

/// Of several ranks' wishes the last in this list counts.
enum class StopWish : int64_t { None, OutOfTime, Signal };

class StopSignal {
  public:
    /// COLLECTIVE. Takes over the two signals for the rest of the process.
    explicit StopSignal(const comm::Communicator& world);

    /// COLLECTIVE, at the end of each step: what one rank at least wishes, be it `own` of this one or a
    /// signal that it had by now; the same answer on all ranks.
    StopWish agreed(StopWish own = StopWish::None);

  private:
    std::unique_ptr<comm::Communicator> control_;  // hosts among themselves, apart from the data's
};

}  // namespace argosy::train
