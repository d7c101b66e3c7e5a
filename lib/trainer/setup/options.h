// Translates the configuration into the model, the mesh and the options of other rooms. The functions read
// the files that the configuration names, and log nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "comm/group.h"
#include "config/arrival.h"
#include "config/job_config.h"
#include "layout/mesh_shape.h"
#include "model/model_spec.h"
#include "observe/diagnosis.h"
#include "observe/metrics_writer.h"
#include "observe/rank_times.h"
#include "train/data_feed.h"
#include "train/lr_schedule.h"
#include "train/run_limits.h"
#include "train/trainer.h"
#include "train/update_guard.h"

namespace argosy::setup {

/// The architecture: that of the config.json in model.hf_assets_path or, without one, the preset. Throws
/// UserError if both are given and differ, and if there is no config.json and not both keys of a preset.
model::ModelSpec choose_model(const config::Model& model);

/// A warning if model.hf_assets_path has neither a config.json nor a tokenizer; else empty.
std::string missing_assets(const config::Model& model);

/// Decides how a translated run names its model: a preset if one fits the sizes of the file, else `folder` as
/// model.hf_assets_path. Returns the text of the config.json for that folder; empty if none is needed. Adds a
/// missing key if neither a preset nor the sizes of the file are a model.
std::string settle_model(config::Arrival& arrival, const std::string& folder);

/// The model's name in messages: name and flavor of a preset, or name and Hugging Face folder.
std::string model_title(const config::Model& model, const model::ModelSpec& spec);

/// `device`: the device on which this rank computes.
comm::GroupOptions group_options(const config::Comm& comm, const Environment& environment,
                                 c10::Device device = c10::kCPU);

/// Chooses the model if its experts are divided: their number limits the degrees.
layout::MeshRequest mesh_request(const config::JobConfig& config);

/// Throws UserError if the data-parallel ranks cannot share training.global_batch_size.
train::BatchSizes batch_sizes(const config::JobConfig& config, const layout::MeshShape& mesh);

/// Batches of validation, in the microbatches of training: as many samples per data-parallel rank as
/// validation.local_batch_size.
train::BatchSizes validation_batch_sizes(const config::JobConfig& config, const layout::MeshShape& mesh);

train::TrainerOptions trainer_options(const config::JobConfig& config, const model::ModelSpec& spec,
                                      const layout::MeshShape& mesh);

train::RunLimitsOptions run_limits_options(const config::JobConfig& config, const layout::MeshShape& mesh);

train::UpdateGuardOptions update_guard_options(const config::JobConfig& config);

/// The decay ends at the run's last step, `final_step`, unless lr_scheduler.total_steps is set.
train::LrScheduleOptions lr_schedule_options(const config::JobConfig& config, int64_t final_step);

/// `final_step` is the run's last step; MetricsOptions defines `last_own_step`.
observe::MetricsOptions metrics_options(const config::JobConfig& config, int64_t final_step,
                                        std::optional<int64_t> last_own_step);

/// The name of this rank's host is Slurm's, if there is one.
observe::RankTimesOptions rank_times_options(const config::JobConfig& config, const layout::MeshShape& mesh,
                                             const Environment& environment);

/// The facts for the diagnosis of a run. `slow_settings`: what RankContext has found.
observe::RunFacts run_facts(const config::JobConfig& config, const train::TrainerOptions& options,
                            const layout::MeshShape& mesh, const std::vector<std::string>& slow_settings);

}  // namespace argosy::setup
