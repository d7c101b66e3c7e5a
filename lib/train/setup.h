// From the configuration to what the modules below want to know: one function for each of them, nothing kept.
#pragma once

#include <cstdint>
#include <string>

#include "base/environment.h"
#include "comm/group.h"
#include "config/job_config.h"
#include "cublas/matmul.h"
#include "data/token_file.h"
#include "mesh/mesh_shape.h"
#include "model/model_spec.h"
#include "ops/tensor_thread.h"
#include "optim/lr_schedule.h"
#include "train/trainer.h"

namespace argosy::train {

/// The preset, or the architecture of model.hf_assets_path; given both, they must be the same model.
model::ModelSpec choose_model(const config::Model& model);

/// `device`: where this rank computes.
comm::GroupOptions group_options(const config::Comm& comm, const Environment& environment,
                                 c10::Device device = c10::kCPU);

/// Whether forward and backward are recorded, where the device and the way between ranks allow it.
bool uses_graphs(const config::JobConfig& config);

/// How operations compute; says on the log which kernels do, of a GPU where this thread computes on one.
ops::Path operation_path(const config::JobConfig& config);

/// Names on the log the keys of [compile] that can say nothing where and how these ranks compute.
void warn_of_idle_keys(const config::JobConfig& config, const comm::Communicator& world);

cublas::Search algorithm_search(const config::Compile& compile);

mesh::MeshRequest mesh_request(const config::Parallelism& parallelism);

/// How a step's samples divide: global_batch samples of the job = data-parallel ranks x num_microbatches x
/// microbatch_size.
struct BatchSizes {
    int64_t global_batch, microbatch_size, num_microbatches;
    int64_t samples_per_rank() const { return microbatch_size * num_microbatches; }
};
BatchSizes batch_sizes(const config::JobConfig& config, const mesh::MeshShape& mesh);

TrainerOptions trainer_options(const config::JobConfig& config, const model::ModelSpec& spec,
                               const mesh::MeshShape& mesh);

/// The decay ends with the run, of `num_steps`, unless the configuration says where.
optim::LrScheduleOptions lr_schedule_options(const config::JobConfig& config, int64_t num_steps);

/// Throws UserError where none is set.
const std::string& dataset_path(const config::Training& training);

/// Throws UserError when the tokens' vocabulary is larger than the model's.
void check_vocabulary(const data::TokenFile& tokens, const model::ModelSpec& spec);

/// debug.deterministic, once and before any tensor. Refuses, or warns of, what would not repeat.
void set_determinism(const config::JobConfig& config, const Environment& environment);

/// For people: of a preset name and size, of a Hugging Face folder its path.
std::string model_title(const config::Model& model, const model::ModelSpec& spec);

}  // namespace argosy::train
