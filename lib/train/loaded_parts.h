// Which parts of a checkpoint a run takes over, and the few numbers among them; private to restore.cpp.
#pragma once

#include <optional>
#include <string>

#include "checkpoint/table.h"
#include "config/job_config.h"
#include "mesh/mesh_shape.h"
#include "train/position.h"
#include "train/run_state.h"

namespace argosy::train {

/// Beside the weights.
struct LoadedParts {
    bool moments = false;  // AdamW's, with the number of updates and the loss scale
    bool data_place = false;
    bool progress = false;  // step, tokens, and what is remembered of skipped updates
    bool any() const { return moments || data_place || progress; }
};

/// Of a step of the run's own: all but what checkpoint.exclude_from_loading names. UserError for a step of
/// the weights alone that the run would have to go on from.
LoadedParts parts_to_resume(const config::JobConfig& config, const mesh::MeshShape& mesh,
                            const checkpoint::Description& description);

/// Of checkpoint.initial_load_path; `description` is none of Hugging Face's. UserError where the whole state
/// is wanted and not there.
LoadedParts parts_to_begin_with(const config::JobConfig& config,
                                const std::optional<checkpoint::Description>& description,
                                const std::string& place);

/// Sets the numbers of the run and returns where it is; says on the log where samples are others now. `place`
/// is for messages.
Position restore_scalars(const config::JobConfig& config, const checkpoint::Description& description,
                         const std::string& place, const LoadedParts& parts, RunState& state);

/// One line for each key of the configuration, and for the mesh, that is not as it was then; but for those
/// that say nothing about the run, as folders.
void log_differences(const config::JobConfig& config, const mesh::MeshShape& mesh,
                     const checkpoint::Description& then);

}  // namespace argosy::train
