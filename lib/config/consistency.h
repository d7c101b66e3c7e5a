// Checks that concern several keys and need no number of ranks. layout/mesh_shape.h checks degrees against
// ranks.
#pragma once

#include "config/job_config.h"

namespace argosy::config {

/// Throws UserError with the contradicting values and what to change.
void check_consistency(const JobConfig& config);

}  // namespace argosy::config
