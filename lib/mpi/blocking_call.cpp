#include "mpi/blocking_call.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <utility>

#include "base/error.h"

namespace argosy::mpi {

BlockingCall::BlockingCall(std::string what, Who who) : what_(std::move(what)), who_(std::move(who)) {
    const Environment::Start start = Environment::read().start;
    if (start.seconds > 0) thread_ = std::thread([this, start] { watch(start); });
}

BlockingCall::~BlockingCall() {
    {
        const std::lock_guard lock(mutex_);
        done_ = true;
    }
    done_changed_.notify_one();
    if (thread_.joinable()) thread_.join();
}

/// Ranks time out one after the other, in the order of their numbers, so that the first message is the only
/// one: the launcher ends the other ranks meanwhile. A rank that was started earlier than the first one may
/// time out before it. Every rank but the first therefore waits up to kTimeOfTheFirst for the first one's
/// message, because an earlier exit would make the launcher end the first rank before it prints. If the job
/// still lives then, the rank prints its own message.
void BlockingCall::watch(const Environment::Start& start) {
    constexpr std::chrono::milliseconds kBetweenRanks{500};
    constexpr int kMaxTurns = 20;
    constexpr std::chrono::seconds kTimeOfTheFirst{10};
    const auto patience =
        std::chrono::seconds(start.seconds) + std::clamp(start.rank, 0, kMaxTurns) * kBetweenRanks;
    std::unique_lock lock(mutex_);
    if (done_changed_.wait_for(lock, patience, [this] { return done_; })) return;
    const MissingRanks absence = who_();
    if (absence.first_speaks && done_changed_.wait_for(lock, kTimeOfTheFirst, [this] { return done_; }))
        return;
    fmt::print(stderr, "{}: error: {} took more than {} s (ARGOSY_START_SECONDS); {}\n",
               program_invocation_short_name, what_, start.seconds, absence.words);
    std::fflush(stderr);
    _exit(static_cast<int>(ExitCode::Watchdog));
}

}  // namespace argosy::mpi
