// Writes the configuration of each start of a run to effective.toml in job.dump_folder, and a line with the
// configuration and facts to starts.jsonl (FORMAT.md). People and jobs/report.py read them.
#pragma once

#include <cstdint>

#include "config/job_config.h"
#include "model/model_spec.h"
#include "setup/rank_context.h"

namespace argosy::setup {

/// The steps that this start is to train.
struct StepRange {
    int64_t first, last;
};

/// Rank 0 writes both files; on other ranks nothing happens. If a file cannot be written, logs a warning: the
/// run does not need it. REQUIRES: this job holds the run's lock.
void record_start(const config::JobConfig& config, const model::ModelSpec& spec, const RankContext& context,
                  StepRange steps);

}  // namespace argosy::setup
