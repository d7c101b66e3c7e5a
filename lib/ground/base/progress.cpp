#include "base/progress.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace argosy {
namespace {

constexpr double kSecondsBetweenLines = 10;

std::string bar(double share) {
    constexpr int kWidth = 20;
    const int filled = static_cast<int>(share * kWidth);
    return fmt::format("[{:#<{}}{:.<{}}]", "", filled, "", kWidth - filled);
}

}  // namespace

Progress::Progress(std::string task) : task_(std::move(task)), started_(seconds_now()), shown_at_(started_) {}

bool Progress::due() const { return seconds_now() - shown_at_ >= kSecondsBetweenLines; }

double Progress::seconds() const { return seconds_now() - started_; }

void Progress::show(double share, const std::string& details) {
    share = std::clamp(share, 0.0, 1.0);
    std::string text = fmt::format("{} {} {:3.0f}%", task_, bar(share), 100 * share);
    if (!details.empty()) text += "  " + details;
    if (share > 0) {
        const auto to_go = std::llround(seconds() * (1 - share) / share);
        text += fmt::format("  {}:{:02}:{:02} to go", to_go / 3600, to_go / 60 % 60, to_go % 60);
    }
    spdlog::info("{}", text);
    shown_at_ = seconds_now();
}

}  // namespace argosy
