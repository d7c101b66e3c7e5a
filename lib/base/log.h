// The log on stderr. main calls `start_log` once. Rank 0 logs messages of the chosen level and above; other
// ranks log only warnings and errors.
#pragma once

#include <spdlog/spdlog.h>

#include <string>

namespace argosy {

/// `level` is the value of ARGOSY_LOG. UserError unless it is trace, debug, info, warn, error or off.
void start_log(const std::string& level, int rank, int num_ranks);

}  // namespace argosy
