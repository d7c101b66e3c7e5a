// From the configuration to what this module wants to know: one function for each, nothing kept.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

#include "base/environment.h"
#include "comm/communicator.h"
#include "config/job_config.h"
#include "model/model_spec.h"
#include "observe/metrics.h"
#include "observe/metrics_writer.h"

namespace argosy::observe {

/// `num_steps`: at which the run ends; `last_own_step`: as MetricsOptions has it. REQUIRES: the log has been
/// started.
MetricsOptions metrics_options(const config::JobConfig& config, int64_t num_steps,
                               std::optional<int64_t> last_own_step, const Environment& environment);

/// `compute`: the type of the matrix products whose peak the datasheet is asked for and which are measured,
/// where that is wanted; says on the log what was.
JobFigures job_figures(const config::JobConfig& config, const model::ModelSpec& spec, at::ScalarType compute,
                       const comm::Communicator& world);

}  // namespace argosy::observe
