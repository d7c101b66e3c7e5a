#include "observe/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>

namespace argosy::observe {
namespace {

double wall_seconds() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
    std::array<char, 256> name{};
    return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

/// Readers find a file by "tfevents" and read a folder's files in the order of their names: the name starts
/// with the seconds, whose width stays the same until the year 2286.
std::string new_path(const std::string& folder) {
    const auto seconds = static_cast<int64_t>(wall_seconds());
    for (int number = 0;; ++number) {
        const std::string name =
            fmt::format("events.out.tfevents.{:010}.{}.{}.{}", seconds, host_name(), getpid(), number);
        const std::filesystem::path path = std::filesystem::path(folder) / name;
        std::error_code unreadable;
        if (!std::filesystem::exists(path, unreadable)) return path.string();
    }
}

}  // namespace

EventFile::EventFile(const std::string& folder) : file_(new_path(folder)) {
    file_.append(framed(version_event({wall_seconds(), 0})));
}

void EventFile::write(int64_t step, const std::vector<Scalar>& scalars) {
    const EventTime now{wall_seconds(), step};
    std::string records = framed(scalars_event(now, scalars));
    if (!started_) records = framed(start_event(now)) + records;
    file_.append(records);
    started_ = true;
}

}  // namespace argosy::observe
