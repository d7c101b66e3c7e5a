// The record of a start of a run: lines of the log on the job and on settings without an effect, and two
// files in job.dump_folder. effective.toml has the configuration; starts.jsonl has a line with the
// configuration and facts of each start (FORMAT.md). People and jobs/report.py read the files.
#pragma once

#include <cstdint>

#include "comm/mesh.h"
#include "config/job_config.h"
#include "data/loader.h"
#include "setup/rank_context.h"
#include "train/trainer.h"

namespace argosy::setup {

/// Logs the keys of [parallelism], [compile], [profiling] and [checkpoint] that are set but have no effect on
/// this mesh, on these devices or with the other settings.
void log_idle_keys(const config::JobConfig& config, const comm::Mesh& mesh);

/// The steps that this start is to train.
struct StepRange {
    int64_t first, last;
};

/// Logs on rank 0 the model, the mesh, the batch sizes, the casts of products on the device, and
/// job.description; warns of steps without effect on the weights and of samples that a step repeats.
void log_job(const config::JobConfig& config, const train::TrainerOptions& options,
             const RankContext& context, const data::Loader& loader, StepRange steps);

/// Rank 0 writes both files; on other ranks nothing happens. If a file cannot be written, logs a warning: the
/// run does not need it. REQUIRES: this job holds the run's lock.
void record_start(const config::JobConfig& config, const train::TrainerOptions& options,
                  const RankContext& context, StepRange steps);

}  // namespace argosy::setup
