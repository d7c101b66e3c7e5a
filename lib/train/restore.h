// Where a run begins: with a step of its own that was saved before, with what another run or Hugging Face
// left, or afresh.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "checkpoint/file_writer.h"
#include "comm/communicator.h"
#include "config/job_config.h"
#include "mesh/mesh_shape.h"
#include "train/position.h"
#include "train/run_state.h"

namespace argosy::train {

struct Start {
    Position position = {};
    bool resumed = false;                        // from a step of the run's own
    std::vector<checkpoint::Asset> assets = {};  // on rank 0: the tokenizer's files that lay with it
    int64_t max_context = 0;  // tokens at once that the loaded weights are for; 0: they start anew
    /// Up to which step lines of metrics in job.dump_folder are this run's: 0 where it begins; none without
    /// checkpoint.enable, where nothing says whose they are.
    std::optional<int64_t> last_own_step = {};
};

/// The folder of the run's steps.
std::filesystem::path steps_folder(const config::JobConfig& config);

/// COLLECTIVE over `control`. Looks and loads as [checkpoint] says, ranks sharing the work of verifying; says
/// on the log what it found, what it passed over and why, and what is configured differently now. UserError
/// where what is asked for is not there, not sound, or of another model; nothing sound among the run's own
/// steps is no fresh start. JobError where nothing sound was found and a place could not be read: that may
/// pass, so that a job is started again.
Start restore(const config::JobConfig& config, const mesh::MeshShape& mesh, comm::Communicator& control,
              RunState& state);

}  // namespace argosy::train
