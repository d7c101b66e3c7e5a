// Writes a trace of this rank's step every profiling.profile_freq steps: PROFILE_TRACES/step-N/rank-R.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/timeline.h"
#include "comm/communicator.h"
#include "config/job_config.h"
#include "observe/gpu_kinds.h"
#include "observe/memory.h"
#include "observe/step_timer.h"
#include "parallel/lowering.h"
#include "train/trainer.h"

namespace argosy::setup {

/// When a rank entered each of some sums over all ranks, and when it left them, by its own clock.
struct Rounds {
    std::vector<double> entered, left;
};
/// Seconds to add to the clock of a rank to get rank 0's. No rank leaves an all-reduce before all have
/// entered it, so each round bounds the offset from both sides, loosely if a rank was held up. The middle of
/// the bounds is off by at most half the time of the fastest round.
double clock_offset(const Rounds& of_rank_0, const Rounds& of_rank);

/// The time in submissions of and waits for operations between ranks in a trace (base/timeline.h), by group,
/// kind and purpose with the number of waits, the longest first: "tp all-gather of wo 1.2 ms (4); ...". For
/// traces of processors: a GPU's host does not wait.
std::string exposed_text(const std::string& trace);

class Profiler {
  public:
    /// REQUIRES: timeline and control outlive this object. `control`: all ranks.
    Profiler(const config::JobConfig& config, Timeline& timeline, comm::Communicator& control);

    /// COLLECTIVE if the step is traced. Called before the step begins.
    void start_step(int64_t step);
    /// Writes the trace, if the step is traced.
    void finish_step();

  private:
    bool enabled_;
    int64_t freq_;
    std::filesystem::path folder_;
    Timeline& timeline_;
    comm::Communicator& control_;
    int64_t step_ = 0;  // the one that is traced
};

/// The kind of work of an operation, by which its time is split.
observe::ComputeKind kind_of(parallel::UnitOpKind op);

/// The options with an observer that tells `timeline`, `timer` and `memory` each operation. REQUIRES: they
/// outlive the trainer.
train::TrainerOptions with_observers(train::TrainerOptions options, Timeline& timeline,
                                     observe::StepTimer& timer, const observe::MemoryMeter& memory);

}  // namespace argosy::setup
