#include "mpi/start_up.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "base/error.h"
#include "mpi/rank_list.h"

namespace argosy::mpi {
namespace {

namespace fs = std::filesystem;

std::set<int> numbers_in(const fs::path& folder) {
    std::set<int> numbers;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
        const std::string name = entry->path().filename();
        int number = 0;
        const auto [rest, failed] = std::from_chars(name.data(), name.data() + name.size(), number);
        if (failed == std::errc() && rest == name.data() + name.size()) numbers.insert(number);
    }
    return numbers;
}

}  // namespace

void record_arrival(const Environment::Start& start) {
    if (start.arrivals.empty() || start.rank < 0) return;
    // Creating the file may fail: messages name fewer ranks then, and jobs/common.sh waits 30 s before it
    // passes a signal on.
    std::ofstream(fs::path(start.arrivals) / std::to_string(start.rank));
}

MissingRanks missing_at_start(const Environment::Start& start) {
    const std::set<int> arrived = numbers_in(start.arrivals);
    MissingRanks found;
    std::vector<int> missing;
    for (int rank = 0; !arrived.empty() && rank < start.num_ranks; ++rank) {
        if (!arrived.contains(rank)) missing.push_back(rank);
    }
    if (!missing.empty()) found.words = named_missing(missing);
    found.first_reports = !arrived.empty() && *arrived.begin() != start.rank;
    return found;
}

BoundedCall::BoundedCall(std::string what, FindMissing find_missing)
    : what_(std::move(what)), find_missing_(std::move(find_missing)) {
    const Environment::Start start = Environment::read().start;
    if (start.seconds > 0) thread_ = std::thread([this, start] { watch(start); });
}

BoundedCall::~BoundedCall() {
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
void BoundedCall::watch(const Environment::Start& start) {
    constexpr std::chrono::milliseconds kBetweenRanks{500};
    constexpr int kMaxTurns = 20;
    constexpr std::chrono::seconds kTimeOfTheFirst{10};
    const auto limit =
        std::chrono::seconds(start.seconds) + std::clamp(start.rank, 0, kMaxTurns) * kBetweenRanks;
    std::unique_lock lock(mutex_);
    if (done_changed_.wait_for(lock, limit, [this] { return done_; })) return;
    const MissingRanks missing = find_missing_();
    if (missing.first_reports && done_changed_.wait_for(lock, kTimeOfTheFirst, [this] { return done_; }))
        return;
    fmt::print(stderr, "{}: error: {} took more than {} s (ARGOSY_START_SECONDS); {}\n",
               program_invocation_short_name, what_, start.seconds, missing.words);
    std::fflush(stderr);
    _exit(static_cast<int>(ExitCode::Watchdog));
}

void all_gather_bytes_at_start(const Comm& ranks, void* all, std::span<const std::byte> own,
                               const std::string& what) {
    const BoundedCall call("the exchange of " + what);
    Request request = ranks.all_gather(all, own.data(), own.size(), ElementType::UInt8);
    while (!test_all({&request, 1})) sched_yield();
}

}  // namespace argosy::mpi
