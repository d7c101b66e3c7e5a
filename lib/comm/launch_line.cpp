#include "comm/launch_line.h"

#include <fmt/format.h>

#include <utility>

#include "base/clock.h"

namespace argosy::comm {

namespace {

/// The same on all ranks, and short where the members are many.
uint64_t digest(const std::vector<int>& members) {
    uint64_t sum = 14695981039346656037U;  // FNV-1a
    for (const int member : members) sum = (sum ^ static_cast<uint64_t>(member)) * 1099511628211U;
    return sum;
}

}  // namespace

LaunchLine::LaunchLine(std::string name, std::vector<int> members, int serial)
    : key_(fmt::format("{}/{:x}/{}", name, digest(members), serial)),
      name_(std::move(name)),
      members_(std::move(members)) {}

void LaunchLine::begin(Work work) {
    const std::lock_guard lock(mutex_);
    last_ = work;
    last_seconds_ = seconds_now();
    launches_.push_back({std::move(work), nullptr, nullptr});
    ++num_begun_;
}

void LaunchLine::launched(PooledEvent begin, PooledEvent end) {
    const std::lock_guard lock(mutex_);
    launches_.back().begin = std::move(begin);
    launches_.back().end = std::move(end);
}

LaunchLine::Standing LaunchLine::look(double elapsed_seconds) {
    const std::lock_guard lock(mutex_);
    while (!launches_.empty() && launches_.front().end && launches_.front().end->done()) {
        launches_.pop_front();
        waited_seconds_ = 0;
    }
    Standing standing{key_, name_, members_, num_begun_, last_, seconds_now() - last_seconds_, std::nullopt};
    if (launches_.empty()) return standing;
    const Launch& oldest = launches_.front();
    if (oldest.begin && !oldest.begin->done()) {
        waited_seconds_ = 0;  // what it waits for on this rank's GPU is not there yet
        return standing;
    }
    waited_seconds_ += elapsed_seconds;
    standing.under_way = {num_begun_ - std::ssize(launches_), oldest.work, waited_seconds_};
    return standing;
}

}  // namespace argosy::comm
