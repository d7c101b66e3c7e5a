// Chooses the parts of a checkpoint that a run loads, and restores them: numbers and tensors.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "checkpoint/table.h"
#include "checkpoint/tensor_source.h"
#include "config/job_config.h"
#include "layout/mesh_shape.h"
#include "resume/run_state.h"
#include "train/data_feed.h"

namespace argosy::resume {

/// The parts to load in addition to the weights.
struct LoadedParts {
    bool moments = false;     // AdamW's, with the number of updates and the loss scale
    bool data_place = false;  // position in the data
    bool progress = false;    // step, tokens, and the UpdateGuard's state
    bool any() const { return moments || data_place || progress; }
};

/// Parts to load from one of the run's own steps: all except those in checkpoint.exclude_from_loading.
/// UserError if the step has only weights and the run still has steps to train.
LoadedParts parts_to_resume(const config::JobConfig& config, const layout::MeshShape& mesh,
                            const checkpoint::Description& description);

/// Parts to load from checkpoint.initial_load_path. `description` is empty for a Hugging Face folder.
/// UserError if the configuration asks for the whole state and the checkpoint does not have it.
LoadedParts parts_to_begin_with(const config::JobConfig& config,
                                const std::optional<checkpoint::Description>& description,
                                const std::string& place);

/// Restores the chosen numbers into `state` and returns the run's position. Logs a change of the sample
/// length. `place`: the checkpoint's path, for messages.
train::Position restore_scalars(const config::JobConfig& config, const checkpoint::Description& description,
                                const std::string& place, const LoadedParts& parts, RunState& state);

/// Logs a line for each key of the configuration, and for the mesh, that differs from the saved one. Keys
/// that do not affect training, such as folders, are left out.
void log_differences(const config::JobConfig& config, const layout::MeshShape& mesh,
                     const checkpoint::Description& then);

// Fills this rank's slabs of weights and optimizer states from a source of whole tensors (a checkpoint or a
// Hugging Face folder). Only the bytes of the slabs are read.

/// Reads nothing. UserError if a tensor is missing, has another shape, or has a type that no weight can have.
void check_tensors(const checkpoint::TensorSource& source, std::span<const HeldSlab> slabs);

/// Reads the slabs in the source's order. Elements stored in another type are rounded to the nearest. A slab
/// is held in memory twice only if its type is converted or it is on a GPU. Throws as check_tensors() before
/// anything is read, and as TensorSource::read(), after which only some slabs are filled.
void load_slabs(const checkpoint::TensorSource& source, std::span<const HeldSlab> slabs);

/// Text for the log on tensors whose stored type differs from the type in memory; empty if there are none.
/// REQUIRES: load_slabs() succeeded.
std::string conversions(const checkpoint::TensorSource& source, std::span<const HeldSlab> slabs);

}  // namespace argosy::resume
