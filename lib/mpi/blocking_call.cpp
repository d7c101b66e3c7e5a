#include "mpi/blocking_call.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <utility>

#include "base/environment.h"
#include "base/error.h"

namespace argosy::mpi {

BlockingCall::BlockingCall(std::string what, Who who) : what_(std::move(what)), who_(std::move(who)) {
    const int seconds = Environment::read().start.seconds;
    if (seconds > 0) thread_ = std::thread([this, seconds] { watch(seconds); });
}

BlockingCall::~BlockingCall() {
    {
        const std::lock_guard lock(mutex_);
        done_ = true;
    }
    done_changed_.notify_one();
    if (thread_.joinable()) thread_.join();
}

void BlockingCall::watch(int seconds) {
    std::unique_lock lock(mutex_);
    if (done_changed_.wait_for(lock, std::chrono::seconds(seconds), [this] { return done_; })) return;
    if (const std::optional<std::string> who = who_()) {
        fmt::print(stderr, "{}: error: {} took more than {} s (ARGOSY_START_SECONDS); {}\n",
                   program_invocation_short_name, what_, seconds, *who);
        std::fflush(stderr);
    }
    _exit(static_cast<int>(ExitCode::Watchdog));
}

}  // namespace argosy::mpi
