#include "interop/progress.h"

#include <fmt/format.h>

#include <algorithm>

namespace argosy::interop {

std::string bytes_text(int64_t num_bytes) {
    constexpr const char* kUnits[] = {"bytes", "kB", "MB", "GB", "TB"};
    auto value = static_cast<double>(num_bytes);
    int unit = 0;
    for (; unit < 4 && value >= 999.5; ++unit) value /= 1000;
    return unit == 0 ? fmt::format("{} bytes", num_bytes) : fmt::format("{:.3g} {}", value, kUnits[unit]);
}

Progress::Progress(std::string title, int64_t total_bytes, const Environment& environment)
    : total_bytes_(total_bytes), shown_(std::move(title), environment) {}

void Progress::add(int64_t num_bytes) {
    const int64_t done_bytes = done_bytes_ += num_bytes;
    const std::unique_lock lock(mutex_, std::try_to_lock);  // a thread that cannot lock shows nothing, which
                                                            // loses nothing
    if (!lock || !shown_.due()) return;
    const double share =
        total_bytes_ > 0 ? static_cast<double>(done_bytes) / static_cast<double>(total_bytes_) : 1;
    shown_.show(share, fmt::format("{} of {}  {}/s", bytes_text(done_bytes), bytes_text(total_bytes_),
                                   bytes_text(bytes_per_second())));
}

std::string Progress::summary() const {
    return fmt::format("{} in {:.3g} s, {}/s", bytes_text(done_bytes_), shown_.seconds(),
                       bytes_text(bytes_per_second()));
}

int64_t Progress::bytes_per_second() const {
    return static_cast<int64_t>(static_cast<double>(done_bytes_) / std::max(shown_.seconds(), 1e-9));
}

}  // namespace argosy::interop
