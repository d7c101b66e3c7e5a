// From the configuration to what saving wants to know, as setup.h has it for the rest.
#pragma once

#include <cstdint>

#include "config/job_config.h"
#include "mesh/mesh_shape.h"
#include "model/model_spec.h"
#include "train/checkpointer.h"
#include "train/restore.h"

namespace argosy::train {

/// Of a run that begins at `start` and ends with `final_step`. UserError for a model that has no config.json,
/// if it is to be saved.
SaveOptions save_options(const config::JobConfig& config, const model::ModelSpec& spec,
                         const mesh::MeshShape& mesh, const Start& start, int64_t final_step);

/// Names on the log the keys of [checkpoint] that are set and can say nothing, by what the others are.
void warn_of_idle_keys(const config::JobConfig& config);

}  // namespace argosy::train
