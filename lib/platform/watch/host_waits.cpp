#include "watch/host_waits.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace argosy::watch {
namespace {

constexpr double kMaxGapSeconds = 1;  // in a longer gap, this process stood still

}  // namespace

WaitReport report_of(const AwaitedOperation& awaited) {
    return {.key = group_key(awaited.group, awaited.members, /*serial=*/-1),
            .operation = awaited.operation(),
            .group = awaited.group,
            .members = compress_ranks(awaited.members),
            .id = {},
            .work = {},
            .needs = Needs::Attention,
            .waited_seconds = 0,
            .limit_seconds = awaited.limit.seconds,
            .limit_name = awaited.limit.setting};
}

std::vector<WaitReport> HostWaits::poll() {
    const std::lock_guard lock(mutex_);
    const double now = seconds_now();
    const double elapsed = std::min(now - std::exchange(last_poll_seconds_, now), kMaxGapSeconds);
    poll_storage(elapsed);
    std::vector<WaitReport> reports;
    for (Entry& entry : entries_) {
        entry.waited_seconds += std::min(elapsed, now - entry.began_at_seconds);
        if (entry.failed) continue;
        reports.push_back(report_of(*entry.awaited));
        reports.back().waited_seconds = entry.waited_seconds;
    }
    return reports;
}

void HostWaits::poll_storage(double elapsed_seconds) {
    const std::optional<FileWait::Mark> now = FileWait::oldest();
    const bool goes_on = now && file_wait_ && now->number == file_wait_->number;
    if (ended_file_wait_) *ended_file_wait_->seconds_since_end += elapsed_seconds;
    if (file_wait_ && !goes_on) {
        StorageWait ended = report_of_file_wait();
        ended.seconds_since_end = 0;
        if (ended.is_long()) ended_file_wait_ = std::move(ended);
    }
    file_wait_seconds_ = goes_on ? file_wait_seconds_ + elapsed_seconds : 0;
    file_wait_ = now;
}

StorageWait HostWaits::report_of_file_wait() const {
    return {file_wait_->what, file_wait_seconds_, storage_limit_.seconds, storage_limit_.setting};
}

std::optional<StorageWait> HostWaits::storage() const {
    const std::lock_guard lock(mutex_);
    if (!file_wait_) return ended_file_wait_;
    StorageWait under_way = report_of_file_wait();
    return under_way.is_long() || !ended_file_wait_ ? under_way : ended_file_wait_;
}

std::optional<WaitReport> HostWaits::fail(const WaitFailure& failure) {
    const std::lock_guard lock(mutex_);
    std::optional<WaitReport> blocked;
    for (Entry& entry : entries_) {
        if (entry.blocks) {
            blocked = report_of(*entry.awaited);
        } else if (!entry.failed) {
            entry.failure = failure;
            entry.failed = true;
        }
    }
    return blocked;
}

HostWait::HostWait(HostWaits& waits, AwaitedOperation awaited, Kind kind)
    : waits_(waits), awaited_(std::move(awaited)), timer_(std::numeric_limits<double>::infinity()) {
    if (kind == Kind::Blocks) enter(/*blocks=*/true);
}

HostWait::~HostWait() {
    if (!entry_) return;
    const std::lock_guard lock(waits_.mutex_);
    waits_.entries_.erase(*entry_);
}

void HostWait::enter(bool blocks) {
    const std::lock_guard lock(waits_.mutex_);
    HostWaits::Entry& entry = waits_.entries_.emplace_back();
    entry.awaited = &awaited_;
    entry.blocks = blocks;
    entry.began_at_seconds = seconds_now();
    entry_ = std::prev(waits_.entries_.end());
}

void HostWait::restart() {
    timer_ = PollTimer(std::numeric_limits<double>::infinity());
    if (!entry_) return;
    const std::lock_guard lock(waits_.mutex_);
    (*entry_)->began_at_seconds = seconds_now();
    (*entry_)->waited_seconds = 0;
}

std::optional<WaitFailure> HostWait::pause() {
    if (!entry_) enter(/*blocks=*/false);
    if ((*entry_)->failed) return (*entry_)->failure;
    timer_.pause();
    return std::nullopt;
}

}  // namespace argosy::watch
