// A tiny run with all that saving and resuming it takes, on a group of ranks.
#pragma once

#include <string>

#include "resume/checkpointer.h"
#include "resume/restore.h"
#include "resume/run_state.h"
#include "train/tiny_run.h"
#include "train/update_guard.h"

namespace argosy::testing {

/// A configuration that saves into `folder`.
config::JobConfig saving_config(const std::filesystem::path& folder);

class SavedRun {
  public:
    /// COLLECTIVE over world, as is the rest.
    SavedRun(const TinyRunOptions& options, const config::JobConfig& config, comm::Communicator& world);

    /// Goes on where the configuration says; the next step is the one after.
    resume::Start restore();

    /// The next step, with the batch of its number, and what the checkpointer does after it. `final_step`: at
    /// which the run ends.
    train::StepResult step();
    void finish() { checkpointer().finish(position_); }

    /// Made at first use: the start is known by then.
    resume::Checkpointer& checkpointer();

    TinyRun& run() { return run_; }
    resume::RunState& state() { return state_; }
    const train::Position& position() const { return position_; }

    static constexpr int64_t kFinalStep = 1000;

  private:
    config::JobConfig config_;
    comm::Communicator& world_;
    TinyRun run_;
    train::UpdateGuard guard_;
    resume::RunState state_;
    resume::Start start_;
    train::Position position_;
    std::optional<resume::Checkpointer> checkpointer_;
};

/// COLLECTIVE: all of the run's tensors, whole, in fp64.
struct WholeState {
    NamedTensors weights, states;
};
WholeState whole_state(TinyRun& run);

/// Bit for bit.
void expect_equal(const WholeState& found, const WholeState& expected);

}  // namespace argosy::testing
