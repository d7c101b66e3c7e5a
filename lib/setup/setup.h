// Translates the configuration into the options of other modules: one function per module, without state.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "comm/group.h"
#include "config/arrival.h"
#include "config/job_config.h"
#include "cublas/matmul.h"
#include "layout/mesh_shape.h"
#include "model/model_spec.h"
#include "observe/diagnosis.h"
#include "observe/metrics.h"
#include "observe/metrics_writer.h"
#include "observe/rank_times.h"
#include "ops/ops_context.h"
#include "optim/lr_schedule.h"
#include "train/data_feed.h"
#include "train/trainer.h"

namespace argosy::setup {

/// The architecture: that of the config.json in model.hf_assets_path or, without one, the preset. Throws
/// UserError if both are given and differ, and if the folder has neither a config.json nor a tokenizer.
model::ModelSpec choose_model(const config::Model& model);

/// Adds a missing key to a translation if model.name and model.flavor are no preset.
void check_preset(config::Arrival& arrival);

/// `device`: the device on which this rank computes.
comm::GroupOptions group_options(const config::Comm& comm, const Environment& environment,
                                 c10::Device device = c10::kCPU);

/// Whether the configuration asks to record forward and backward as CUDA graphs. Recording also needs a
/// device and a transport between ranks that allow it.
bool uses_graphs(const config::JobConfig& config);

/// For a pipeline: gives CUDA's streams as many hardware queues as possible (CUDA_DEVICE_MAX_CONNECTIONS),
/// unless the environment sets their number. Call this before the first call of CUDA.
void separate_streams(const config::Parallelism& parallelism);

/// Whether this thread computes on a GPU. Never throws.
bool computes_on_gpu();

/// The implementation of operations. Logs which kernels operations use. Throws UserError as kernels::table()
/// does.
ops::Path operation_path(const config::JobConfig& config);

/// Logs the keys of [parallelism] and [compile] that are set but have no effect on this mesh, on these
/// devices or with the other settings.
void log_idle_keys(const config::JobConfig& config, const comm::Mesh& mesh);

cublas::Search algorithm_search(const config::Compile& compile);

layout::MeshRequest mesh_request(const config::Parallelism& parallelism);

train::BatchSizes batch_sizes(const config::JobConfig& config, const layout::MeshShape& mesh);

/// Batches of validation: as many samples per data-parallel rank as validation.local_batch_size.
train::BatchSizes validation_batch_sizes(const config::JobConfig& config, const layout::MeshShape& mesh);

train::TrainerOptions trainer_options(const config::JobConfig& config, const model::ModelSpec& spec,
                                      const layout::MeshShape& mesh);

/// The decay ends at the run's last step, `final_step`, unless lr_scheduler.total_steps is set.
optim::LrScheduleOptions lr_schedule_options(const config::JobConfig& config, int64_t final_step);

/// `final_step` is the run's last step; MetricsOptions defines `last_own_step`. REQUIRES: the log has been
/// started.
observe::MetricsOptions metrics_options(const config::JobConfig& config, int64_t final_step,
                                        std::optional<int64_t> last_own_step, const Environment& environment);

/// The parameters are those of metrics_options(). The name of this rank's host is Slurm's, if there is one.
observe::RankTimesOptions rank_times_options(const config::JobConfig& config, const layout::MeshShape& mesh,
                                             int64_t final_step, std::optional<int64_t> last_own_step,
                                             const Environment& environment);

/// The facts for the diagnosis of a run. `slow_settings`: what RankContext has found.
observe::RunFacts run_facts(const config::JobConfig& config, const train::TrainerOptions& options,
                            const layout::MeshShape& mesh, const std::vector<std::string>& slow_settings);

/// The names of the types of matrix products, of the weights that the optimizer updates, and of sums of
/// gradients over ranks.
std::array<std::string, 3> number_types(const config::Training& training);

/// "computes in bfloat16, weights in float32, gradients summed over ranks in float32".
std::string number_types_line(const config::Training& training);

/// A warning for a run whose products are slower than those of another type on this device, with the factor;
/// empty for others. `datasheet` and `compute_datasheet` are those of JobFigures, `capability` is that of the
/// GPU (90 for 9.0).
std::string slow_type_on_gpu(const config::Training& training, const observe::JobFigures& figures,
                             int capability);

/// The same for this processor, whose products are measured if it has no instructions for bfloat16.
std::string slow_type_on_processor(const config::Training& training);

/// The figures of a job: the device's peaks for matrix products in the datasheets and, if enabled, measured
/// and logged. Rank 0 warns of a type that is slow on its device.
observe::JobFigures job_figures(const config::JobConfig& config, const model::ModelSpec& spec,
                                const comm::Communicator& world);

/// Applies debug.deterministic. Call this once, before any tensor is made. If another setting prevents runs
/// from repeating exactly, throws UserError or logs a line.
void set_determinism(const config::JobConfig& config, const Environment& environment);

/// The model's name in messages: name and flavor of a preset, or name and Hugging Face folder.
std::string model_title(const config::Model& model, const model::ModelSpec& spec);

/// Logs the model, the mesh, the batch sizes, the casts of products on the device, and job.description.
void log_job(const config::JobConfig& config, const model::ModelSpec& spec, const layout::MeshShape& mesh,
             const train::BatchSizes& sizes, c10::Device device);

}  // namespace argosy::setup
