#include "base/progress.h"

#include <cmath>

#include "base/clock.h"
#include "base/log.h"

namespace argosy {
namespace {

constexpr double kLogSeconds = 10;

}  // namespace

Progress::Progress(std::string task, const Environment& environment)
    : task_(std::move(task)), started_(seconds_now()), last_logged_(started_) {
    if (log_is_on_a_terminal(environment)) line_.emplace(environment.columns);
}

void Progress::show(double share) {
    const double now = seconds_now();
    if (!(share > 0) || (!line_ && now - last_logged_ < kLogSeconds)) return;
    const auto to_go = std::llround((now - started_) * (1 - share) / share);
    const std::string text = fmt::format("{}: {:.0f} %, {}:{:02}:{:02} to go", task_, 100 * share,
                                         to_go / 3600, to_go / 60 % 60, to_go % 60);
    if (line_) return line_->show(text);
    spdlog::info("{}", text);
    last_logged_ = now;
}

}  // namespace argosy
