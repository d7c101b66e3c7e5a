// How all ranks agree, at the end of each step, whether to stop: on a signal (base/stop_request.h), which
// Slurm sends before a time limit or a preemption, and not to all ranks at the same moment; or on a rank's
// clock (run_limits.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "base/error.h"
#include "comm/communicator.h"
#include "train/position.h"

namespace argosy::train {

/// Of several ranks' wishes the last in this list counts.
enum class StopWish : int64_t { None, OutOfTime, Signal };

/// COLLECTIVE: all ranks, apart from the data's groups, for what they must agree on between steps.
std::unique_ptr<comm::Communicator> control_group(const comm::Communicator& world);

/// How a run ends that a signal stopped at `position`: Requeue where the run is `saved`, and throws JobError
/// where it never is. `start`: where this process began; there is nothing of its own to save there.
ExitCode stopped_by_signal(const Position& position, const Position& start, int64_t num_steps, bool saved);

class StopSignal {
  public:
    /// REQUIRES: main began with catch_stop_requests(), and `control` outlives it.
    explicit StopSignal(comm::Communicator& control) : control_(control) {}

    /// COLLECTIVE, at the end of each step: what one rank at least wishes, be it `own` of this one or a
    /// signal that it had by now; the same answer on all ranks.
    StopWish agreed(StopWish own = StopWish::None);

  private:
    comm::Communicator& control_;
};

}  // namespace argosy::train
