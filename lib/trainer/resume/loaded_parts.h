// Chooses which parts of a checkpoint a run loads, and restores the numbers and tensors of these parts.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "checkpoint/hash.h"
#include "checkpoint/table.h"
#include "checkpoint/tensor_source.h"
#include "comm/communicator.h"
#include "config/job_config.h"
#include "layout/mesh_shape.h"
#include "resume/run_state.h"
#include "train/run_limits.h"

namespace argosy::resume {

/// The parts to load in addition to the weights, named as in checkpoint.exclude_from_loading.
struct LoadedParts {
    bool optimizer = false;    // the optimizers' states and number of updates
    bool dataloader = false;   // position in the data
    bool train_state = false;  // step, tokens, and the UpdateGuard's state
    bool any() const { return optimizer || dataloader || train_state; }
};

/// Parts to load from one of the run's own steps: all except the parts in checkpoint.exclude_from_loading,
/// and except the optimizer's if the step has only weights. In the latter case, throws UserError if the run
/// still has steps to train, unless checkpoint.exclude_from_loading has the optimizer.
LoadedParts parts_to_resume(const config::JobConfig& config, const layout::MeshShape& mesh,
                            const checkpoint::Description& description);

/// Parts to load from checkpoint.initial_load_path. `description` is empty for a Hugging Face folder;
/// `weights_alone` is that of the ModelSource. Throws UserError if checkpoint.initial_load_model_only is
/// false and the checkpoint has no state, or lacks the optimizers' states although they are to be loaded; and
/// if both it and training.first_sample say a place in the data.
LoadedParts parts_to_begin_with(const config::JobConfig& config,
                                const std::optional<checkpoint::Description>& description,
                                const std::string& place, const std::string& weights_alone = "");

/// This run's numbers where a checkpoint does not know its own.
struct Fresh {
    int64_t first_sample = 0;  // its place in the data
    int64_t tokens_per_step = 0;
};

/// Restores the numbers of the chosen parts into `state` and returns the run's position. Logs a change of the
/// sample length. `place` is the checkpoint's path, for messages. Throws UserError for a run in float16.
train::Position restore_scalars(const checkpoint::Description& description, const std::string& place,
                                const LoadedParts& parts, const Fresh& fresh, RunState& state);

/// Whether a run that loads these parts has its place in the data from the checkpoint.
bool has_place(const checkpoint::Description& description, const LoadedParts& parts,
               const std::string& place);

/// COLLECTIVE over `control`, for a run that loads its position in the data. Warns on rank 0 if the next
/// samples are not those that came next when the position was saved: their order has changed, or some rank
/// reads other data. `next_sample`: the first sample of this run.
void warn_of_other_samples(const config::JobConfig& config, const checkpoint::Description& then,
                           const std::string& place, int64_t next_sample, const RunState& state,
                           comm::Communicator& control);

/// Logs a line for each key of the configuration whose value differs from the saved one, and for the mesh if
/// it differs. Keys that do not affect training, such as folders, are left out.
void log_differences(const config::JobConfig& config, const layout::MeshShape& mesh,
                     const checkpoint::Description& then);

// The following functions fill this rank's slabs of weights and optimizer states from a source of whole
// tensors (a checkpoint or a Hugging Face folder). They read only the bytes of the slabs.

/// Throws UserError if a tensor is missing (unless HeldSlab::if_missing says what it is), has another shape,
/// or has a type that no weight can have. Reads no elements.
void check_tensors(const checkpoint::TensorSource& source, std::span<const HeldSlab> slabs);

/// Reads the slabs in the source's order. Elements stored in another type are rounded to the nearest value. A
/// slab is held in memory twice only if its type is converted or it is on a GPU. Throws the errors of
/// check_tensors() before reading, and those of TensorSource::read(), after which only some slabs are filled.
void load_slabs(const checkpoint::TensorSource& source, std::span<const HeldSlab> slabs);

/// The hash of a row of each of at most 256 matrices: almost never that of other weights of the model.
checkpoint::Hash hash_of_samples(const checkpoint::TensorSource& source);

/// Text for the log on tensors whose stored type differs from the type in memory; empty if there are none.
/// REQUIRES: load_slabs() succeeded.
std::string conversions(const checkpoint::TensorSource& source, std::span<const HeldSlab> slabs);

}  // namespace argosy::resume
