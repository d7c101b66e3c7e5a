#include "base/log.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <memory>

#include "base/error.h"

namespace argosy {

void start_log(const std::string& level, int rank, int num_ranks) {
    const auto wanted = spdlog::level::from_str(level);
    if (wanted == spdlog::level::off && level != "off") {
        throw UserError("ARGOSY_LOG is '{}'; it must be trace, debug, info, warn, error or off", level);
    }
    auto logger =
        std::make_shared<spdlog::logger>("argosy", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    logger->set_pattern(num_ranks == 1 ? "%T %L %v" : fmt::format("%T %L [{}] %v", rank));
    logger->set_level(rank == 0 ? wanted : std::max(wanted, spdlog::level::warn));
    spdlog::set_default_logger(std::move(logger));
}

}  // namespace argosy
