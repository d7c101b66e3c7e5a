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
#include "train/run_limits.h"

namespace argosy::resume {

struct Start {
    train::Position position = {};
    bool resumed = false;                        // true: the run resumes from one of its own steps
    std::vector<checkpoint::Asset> assets = {};  // on rank 0: the tokenizer's files in the checkpoint
    int64_t max_context = 0;  // context length of the loaded weights, in tokens; 0: nothing was loaded
    /// Lines of metrics in job.dump_folder up to this step belong to this run. 0 if the run does not resume.
    /// Empty without checkpoint.enable, because it is then unknown which run wrote the lines.
    std::optional<int64_t> last_own_step = {};
};

/// The folder of the run's steps.
std::filesystem::path steps_folder(const config::JobConfig& config);

/// COLLECTIVE over `control`. Finds and loads a checkpoint as [checkpoint] says; the ranks share the work of
/// verifying it. Logs which checkpoint was found, which ones were skipped and why, and which settings differ
/// from the saved ones. Throws UserError if the requested checkpoint is missing, damaged, or of another
/// model, if all steps of the run are damaged, or if there are steps but checkpoint.enable is false: a run
/// with steps never starts afresh. Throws JobError if no intact checkpoint was found and some checkpoint
/// could not be read: such a failure may be temporary, so the job should be started again.
Start restore(const config::JobConfig& config, const layout::MeshShape& mesh, comm::Communicator& control,
              RunState& state);

/// COLLECTIVE over `control`. Loads the weights of checkpoint.initial_load_path, which names one checkpoint
/// and not a folder of several, as restore() does. Throws DamageError if its bytes are
/// damaged or one of its files is missing, UserError if it is no checkpoint.
void load_weights(const config::JobConfig& config, const layout::MeshShape& mesh, comm::Communicator& control,
                  HeldWeights& weights);

}  // namespace argosy::resume
