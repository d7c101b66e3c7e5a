// The log on stderr. main calls `start_log` once. Rank 0 logs messages of the chosen level and above; other
// ranks log only warnings and errors.
#pragma once

#include <spdlog/spdlog.h>

#include <string>
#include <string_view>

namespace argosy {

/// The longest text before a message of rank 0.
inline constexpr std::string_view kMaxLogPrefix = "23:59:59 I [0] ";

/// `level` is the value of ARGOSY_LOG. UserError unless it is trace, debug, info, warn, error or off.
void start_log(const std::string& level, int rank, int num_ranks);

}  // namespace argosy
