#include "comm/launch_line.h"

#include <fmt/format.h>

#include <utility>

#include "base/clock.h"
#include "comm/graph_progress.h"

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
    last_ = {work, seconds_now()};
    launches_.push_back({num_begun_++, std::move(work), nullptr, nullptr});
}

void LaunchLine::launched(PooledEvent begin, PooledEvent end) {
    const std::lock_guard lock(mutex_);
    launches_.back().begin = std::move(begin);
    launches_.back().end = std::move(end);
}

void LaunchLine::returned() {
    const std::lock_guard lock(mutex_);
    launches_.pop_back();
    waited_seconds_ = 0;
}

void LaunchLine::record(Work work, const std::byte* begun) {
    const std::lock_guard lock(mutex_);
    recorded_.push_back({std::move(work), begun, nullptr});
}

void LaunchLine::recorded(const std::byte* done) {
    const std::lock_guard lock(mutex_);
    recorded_.back().done = done;
}

void LaunchLine::forget_graph() {
    const std::lock_guard lock(mutex_);
    recorded_.clear();
    num_done_ = 0;
    if (stage_ == Graph::Launched) stage_ = Graph::None;
}

void LaunchLine::graph_begins() {
    const std::lock_guard lock(mutex_);
    stage_ = Graph::Launching;
    first_number_ = num_begun_;
    before_graph_ = last_;
    num_done_ = 0;
    graph_waited_seconds_ = 0;
}

void LaunchLine::graph_launched() {
    const std::lock_guard lock(mutex_);
    stage_ = Graph::Launched;
    if (recorded_.empty()) return;
    num_begun_ += std::ssize(recorded_);
    last_ = {recorded_.back().work, seconds_now()};
}

LaunchLine::Standing LaunchLine::look(double elapsed_seconds) {
    const std::lock_guard lock(mutex_);
    Standing standing{key_,        name_, members_, num_begun_, last_.work, seconds_now() - last_.at_seconds,
                      std::nullopt};
    look_at_launches(elapsed_seconds, standing);
    look_at_graph(elapsed_seconds, standing);
    return standing;
}

void LaunchLine::look_at_launches(double elapsed_seconds, Standing& standing) {
    while (!launches_.empty() && launches_.front().end && launches_.front().end->done()) {
        launches_.pop_front();
        waited_seconds_ = 0;
    }
    if (launches_.empty()) return;
    const Launch& oldest = launches_.front();
    if (oldest.begin && !oldest.begin->done()) {
        waited_seconds_ = 0;  // what it waits for on this rank's GPU is not there yet
        return;
    }
    waited_seconds_ += elapsed_seconds;
    standing.under_way = {oldest.number, oldest.work, waited_seconds_};
}

/// One stream does what is recorded here, one after the other.
void LaunchLine::look_at_graph(double elapsed_seconds, Standing& standing) {
    if (stage_ == Graph::None) return;
    while (num_done_ < recorded_.size() && recorded_[num_done_].done &&
           GraphProgress::is_set(recorded_[num_done_].done)) {
        ++num_done_;
        graph_waited_seconds_ = 0;
    }
    if (num_done_ == recorded_.size()) return;
    const Recorded& next = recorded_[num_done_];
    const size_t num_begun = num_done_ + (GraphProgress::is_set(next.begun) ? 1 : 0);
    standing.num_begun = first_number_ + static_cast<int64_t>(num_begun);
    const double now = seconds_now();
    if (std::exchange(num_seen_, standing.num_begun) != standing.num_begun) seen_at_seconds_ = now;
    standing.last = num_begun == 0 ? before_graph_.work : recorded_[num_begun - 1].work;
    standing.seconds_since_last = now - (num_begun == 0 ? before_graph_.at_seconds : seen_at_seconds_);
    if (num_begun == num_done_) return;
    graph_waited_seconds_ += elapsed_seconds;
    if (standing.under_way && standing.under_way->waited_seconds > graph_waited_seconds_) return;
    standing.under_way = {standing.num_begun - 1, next.work, graph_waited_seconds_};
}

}  // namespace argosy::comm
