// At the end of each step all ranks agree whether to stop: because of a signal (base/program.h), which
// Slurm sends before a time limit or a preemption and which reaches ranks at different moments, or because of
// a rank's clock (run_limits.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "base/error.h"
#include "comm/communicator.h"
#include "train/position.h"

namespace argosy::train {

/// Whether a rank asks to stop, and why. The ranks take the maximum, so a later value takes precedence.
enum class StopReason : int64_t { None, OutOfTime, Signal };

/// COLLECTIVE: a group of all ranks for agreement between steps, separate from the groups that carry training
/// data.
std::unique_ptr<comm::Communicator> control_group(const comm::Communicator& world);

/// Ends a run that a signal stopped at `position`: returns Requeue if the run is `saved`, throws JobError if
/// it never saves. `start`: position at which this process began; if it is `position`, nothing new is saved.
ExitCode stopped_by_signal(const Position& position, const Position& start, int64_t num_steps, bool saved);

class StopAgreement {
  public:
    /// REQUIRES: main began with catch_stop_requests(), and `control` outlives it.
    explicit StopAgreement(comm::Communicator& control) : control_(control) {}

    /// COLLECTIVE, at the end of each step: the maximum over all ranks of `own` and of Signal where a rank
    /// has received a signal; the same answer on all ranks.
    StopReason agreed(StopReason own = StopReason::None);

  private:
    comm::Communicator& control_;
};

}  // namespace argosy::train
