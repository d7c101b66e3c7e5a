// Progress and warnings on stderr. main calls `start_log` once. Rank 0 logs from the chosen level, other
// ranks only from warnings up.
#pragma once

#include <spdlog/spdlog.h>

#include <string>

namespace argosy {

/// REQUIRES: `level` names a level: trace, debug, info, warn, error.
void start_log(const std::string& level, int rank, int num_ranks);

}  // namespace argosy
