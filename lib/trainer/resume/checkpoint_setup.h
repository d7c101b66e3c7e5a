// Translates the configuration into the options of the Checkpointer (checkpointer.h), and logs keys of
// [checkpoint] that have no effect. setup/options.h and setup/start_record.h do the same for the other
// rooms.
#pragma once

#include <cstdint>

#include "config/job_config.h"
#include "layout/mesh_shape.h"
#include "model/model_spec.h"
#include "resume/checkpointer.h"
#include "resume/restore.h"

namespace argosy::resume {

/// Options for a run that begins at `start` and ends with `final_step`. Throws UserError if the run saves and
/// no config.json can describe the model.
SaveOptions save_options(const config::JobConfig& config, const model::ModelSpec& spec,
                         const layout::MeshShape& mesh, const Start& start, int64_t final_step);

/// Logs the keys of [checkpoint] that are set but have no effect, given the values of the other keys.
void log_idle_checkpoint_keys(const config::JobConfig& config);

}  // namespace argosy::resume
