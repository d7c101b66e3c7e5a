// Finds and loads the state with which a run begins: a step that the run itself saved before, a checkpoint of
// another run or of Hugging Face, or fresh weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "checkpoint/table.h"
#include "comm/communicator.h"
#include "config/job_config.h"
#include "layout/mesh_shape.h"
#include "resume/run_state.h"
#include "train/data_feed.h"

namespace argosy::resume {

struct Start {
    train::Position position = {};
    bool resumed = false;                        // from one of the run's own steps
    std::vector<checkpoint::Asset> assets = {};  // on rank 0: the tokenizer's files in the checkpoint
    int64_t max_context = 0;  // context length of the loaded weights, in tokens; 0: nothing was loaded
    /// Lines of metrics in job.dump_folder up to this step belong to this run; 0 for a run that does not
    /// resume. Empty without checkpoint.enable, since nothing then shows which run wrote them.
    std::optional<int64_t> last_own_step = {};
};

/// The folder of the run's steps.
std::filesystem::path steps_folder(const config::JobConfig& config);

/// COLLECTIVE over `control`. Finds and loads a checkpoint as [checkpoint] says; the ranks share the work of
/// verifying it. Logs what it found, what it skipped and why, and which settings differ from the saved ones.
/// UserError if the requested checkpoint is missing, damaged, or of another model, or if the run has steps
/// and all are damaged: a run with steps never starts afresh. JobError if nothing sound was found and some
/// checkpoint could not be read: such a failure may be temporary, so the job should be started again.
Start restore(const config::JobConfig& config, const layout::MeshShape& mesh, comm::Communicator& control,
              RunState& state);

}  // namespace argosy::resume
