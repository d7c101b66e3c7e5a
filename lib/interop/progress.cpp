#include "interop/progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"

namespace argosy::interop {
namespace {

constexpr double kSecondsBetweenLines = 10, kSecondsBetweenDrawings = 0.2;

}  // namespace

std::string bytes_text(int64_t num_bytes) {
    constexpr const char* kUnits[] = {"bytes", "kB", "MB", "GB", "TB"};
    auto value = static_cast<double>(num_bytes);
    int unit = 0;
    for (; unit < 4 && value >= 999.5; ++unit) value /= 1000;
    return unit == 0 ? fmt::format("{} bytes", num_bytes) : fmt::format("{:.3g} {}", value, kUnits[unit]);
}

Progress::Progress(std::string title, int64_t total_bytes, const Environment& environment)
    : title_(std::move(title)), total_bytes_(total_bytes), started_(seconds_now()), said_at_(started_) {
    if (log_is_on_a_terminal(environment)) line_ = std::make_unique<LiveLine>(environment.columns);
}

Progress::~Progress() = default;

void Progress::add(int64_t num_bytes) {
    const int64_t done_bytes = done_bytes_ += num_bytes;
    const double now = seconds_now();
    const std::unique_lock lock(mutex_, std::try_to_lock);  // who says nothing loses nothing
    if (!lock || now - said_at_ < (line_ ? kSecondsBetweenDrawings : kSecondsBetweenLines)) return;
    said_at_ = now;
    const std::string said = text(done_bytes, now - started_);
    if (line_) {
        line_->show(said);
    } else {
        spdlog::info("{}", said);
    }
}

std::string Progress::summary() const {
    const double seconds = seconds_now() - started_;
    const auto rate = static_cast<int64_t>(static_cast<double>(done_bytes_) / std::max(seconds, 1e-9));
    return fmt::format("{} in {:.3g} s, {}/s", bytes_text(done_bytes_), seconds, bytes_text(rate));
}

std::string Progress::text(int64_t done_bytes, double seconds) const {
    const double share =
        total_bytes_ > 0 ? static_cast<double>(done_bytes) / static_cast<double>(total_bytes_) : 1;
    const auto rate = static_cast<int64_t>(static_cast<double>(done_bytes) / std::max(seconds, 1e-9));
    const double left = share > 0 ? seconds * (1 - share) / share : 0;
    const int filled = static_cast<int>(share * 20);
    return fmt::format("{} [{:#<{}}{:.<{}}] {:3.0f}%  {} of {}  {}/s  {:.0f} s to go", title_, "", filled, "",
                       20 - filled, 100 * share, bytes_text(done_bytes), bytes_text(total_bytes_),
                       bytes_text(rate), left);
}

}  // namespace argosy::interop
