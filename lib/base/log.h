// Progress and warnings, on stderr. `start_log` once from main; rank 0 speaks, the others only from warnings
// up.
#pragma once

#include <spdlog/spdlog.h>

#include <string>

namespace argosy {

/// REQUIRES: `level` is a level's name: trace, debug, info, warn, error.
void start_log(const std::string& level, int rank, int num_ranks);

}  // namespace argosy
