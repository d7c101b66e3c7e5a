// Builds this module's options and figures from the configuration: one function for each struct, no state.
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

/// `final_step` is the run's last step; MetricsOptions defines `last_own_step`. REQUIRES: the log has been
/// started.
MetricsOptions metrics_options(const config::JobConfig& config, int64_t final_step,
                               std::optional<int64_t> last_own_step, const Environment& environment);

/// Looks up the device's peak for matrix products of type `compute` in the datasheets and, if enabled,
/// measures it and logs it.
JobFigures job_figures(const config::JobConfig& config, const model::ModelSpec& spec, at::ScalarType compute,
                       const comm::Communicator& world);

}  // namespace argosy::observe
