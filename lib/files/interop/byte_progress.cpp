#include "interop/byte_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace argosy::interop {

ByteProgress::ByteProgress(std::string task, int64_t total_bytes)
    : total_bytes_(total_bytes), progress_(std::move(task)) {}

void ByteProgress::add(int64_t num_bytes) {
    const int64_t done_bytes = done_bytes_ += num_bytes;
    // A thread that does not get the lock shows nothing; its bytes are counted already.
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || !progress_.due()) return;
    const double share =
        total_bytes_ > 0 ? static_cast<double>(done_bytes) / static_cast<double>(total_bytes_) : 1;
    progress_.show(share, fmt::format("{} of {}  {}/s", bytes_text(done_bytes), bytes_text(total_bytes_),
                                      bytes_text(bytes_per_second())));
}

std::string ByteProgress::summary() const {
    return fmt::format("{} in {:.3g} s, {}/s", bytes_text(done_bytes_), progress_.seconds(),
                       bytes_text(bytes_per_second()));
}

int64_t ByteProgress::bytes_per_second() const {
    return static_cast<int64_t>(static_cast<double>(done_bytes_) / std::max(progress_.seconds(), 1e-9));
}

std::string bytes_text(int64_t num_bytes) {
    constexpr const char* kUnits[] = {"bytes", "kB", "MB", "GB", "TB"};
    auto value = static_cast<double>(num_bytes);
    int unit = 0;
    for (; unit < 4 && value >= 999.5; ++unit) value /= 1000;
    return unit == 0 ? fmt::format("{} bytes", num_bytes) : fmt::format("{:.3g} {}", value, kUnits[unit]);
}

}  // namespace argosy::interop
