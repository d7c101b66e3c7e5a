// Checks that concern several keys at once and need no number of ranks. Degrees against ranks are the
// mesh's business.
#pragma once

#include "config/job_config.h"

namespace argosy::config {

/// Throws UserError with the values that contradict each other and what to change.
void check_consistency(const JobConfig& config);

}  // namespace argosy::config
