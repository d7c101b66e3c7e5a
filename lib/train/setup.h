// From the configuration to what the modules below want to know: one function for each of them, nothing kept.
#pragma once

#include <cstdint>

#include "config/job_config.h"
#include "mesh/mesh_shape.h"
#include "model/model_spec.h"
#include "optim/lr_schedule.h"
#include "train/trainer.h"

namespace argosy::train {

/// The preset, or the architecture of model.hf_assets_path; given both, they must be the same model.
model::ModelSpec choose_model(const config::Model& model);

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

optim::LrScheduleOptions lr_schedule_options(const config::JobConfig& config);

}  // namespace argosy::train
