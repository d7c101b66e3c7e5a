// The configuration as options of the modules that say why a run is slow.
#pragma once

#include <string>
#include <vector>

#include "base/environment.h"
#include "config/job_config.h"
#include "layout/mesh_shape.h"
#include "observe/diagnosis.h"
#include "observe/rank_times.h"
#include "train/trainer.h"

namespace argosy::setup {

/// The name of this rank's host is Slurm's, if there is one.
observe::RankTimesOptions rank_times_options(const config::JobConfig& config, const layout::MeshShape& mesh,
                                             const Environment& environment);

/// The facts for the diagnosis of a run. `slow_settings`: what RankContext has found.
observe::RunFacts run_facts(const config::JobConfig& config, const train::TrainerOptions& options,
                            const layout::MeshShape& mesh, const std::vector<std::string>& slow_settings);

}  // namespace argosy::setup
