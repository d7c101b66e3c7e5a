#include "mpi/start_up.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <ranges>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace argosy::mpi {
namespace {

namespace fs = std::filesystem;

/// A rank renews its file kRenewals times within the limit. A rank counts as missing only after
/// kMissedRenewals missed renewals, because a file's time may reach other nodes late, and a busy node may
/// pause the rank.
constexpr int kRenewals = 10, kMissedRenewals = 3;

double seconds_between_renewals(const Environment::Start& start) {
    return static_cast<double>(start.seconds) / kRenewals;
}

/// The number of bounded calls that this rank has left. Every rank makes the same calls.
std::atomic<int64_t> num_calls_left = 0;

/// This rank's file; empty if there is no folder.
fs::path own_file(const Environment::Start& start) {
    if (start.arrivals.empty() || start.rank < 0) return {};
    return fs::path(start.arrivals) / std::to_string(start.rank);
}

/// Creates this rank's file, or sets its time to now. A failure is ignored: messages may then list this rank
/// as missing, and jobs/shell/job.sh waits up to 30 s for the file before it passes on a signal.
void renew(const Environment::Start& start) {
    const fs::path file = own_file(start);
    if (file.empty() || utimensat(AT_FDCWD, file.c_str(), nullptr, 0) == 0) return;
    std::error_code ignored;
    fs::create_directory(file.parent_path(), ignored);
    std::ofstream{file};
}

/// Adds a byte to this rank's file, which has one for each call that the rank has left. The other ranks then
/// know that this one does not keep them waiting, however old its file becomes.
void note_call_left(const Environment::Start& start) {
    ++num_calls_left;
    const fs::path file = own_file(start);
    if (!file.empty()) std::ofstream(file, std::ios::app) << '.';
}

struct RankFile {
    fs::file_time_type time;
    int64_t num_calls_left = 0;
};

std::map<int, RankFile> files_by_rank(const fs::path& folder) {
    std::map<int, RankFile> files;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
        const std::string name = entry->path().filename();
        int rank = 0;
        const auto [rest, failed] = std::from_chars(name.data(), name.data() + name.size(), rank);
        if (failed != std::errc() || rest != name.data() + name.size()) continue;
        std::error_code unreadable, no_size;
        const RankFile file = {fs::last_write_time(entry->path(), unreadable),
                               static_cast<int64_t>(fs::file_size(entry->path(), no_size))};
        if (!unreadable && !no_size) files[rank] = file;
    }
    return files;
}

struct Arrivals {
    std::vector<int> missing;
    int reporter = -1;  // the lowest rank that is not missing; -1: the folder has no file of a rank
};

Arrivals read_arrivals(const Environment::Start& start) {
    const auto files = files_by_rank(start.arrivals);
    Arrivals found;
    if (files.empty()) return found;
    // The times are compared with each other, since the file system's clock may differ from this node's. On a
    // file system that takes the writer's clock, the nodes' clocks must agree to a fifth of the limit.
    const auto newest = std::ranges::max(files | std::views::values, {}, &RankFile::time).time;
    const std::chrono::duration<double> oldest_age(kMissedRenewals * seconds_between_renewals(start));
    for (int rank = 0; rank < start.num_ranks; ++rank) {
        const auto file = files.find(rank);
        if (file == files.end() ||
            (newest - file->second.time > oldest_age && file->second.num_calls_left <= num_calls_left)) {
            found.missing.push_back(rank);
        } else if (found.reporter < 0) {
            found.reporter = rank;
        }
    }
    return found;
}

}  // namespace

std::string named_missing(std::span<const int> ranks) {
    constexpr size_t kMaxMissing = 400;
    return "missing: rank " + listed(ranks, kMaxMissing);
}

BoundedCall::BoundedCall(std::string what) : what_(std::move(what)) {
    const Environment::Start start = Environment::read().start;
    renew(start);
    if (start.seconds > 0) thread_ = std::thread([this, start] { watch(start); });
}

BoundedCall::~BoundedCall() {
    {
        const std::lock_guard lock(mutex_);
        done_ = true;
    }
    done_changed_.notify_one();
    if (thread_.joinable()) thread_.join();
    note_call_left(Environment::read().start);
}

bool BoundedCall::returns_within(double seconds, const Environment::Start& start) {
    const double renewal = seconds_between_renewals(start);
    std::unique_lock lock(mutex_);
    for (double left = seconds; left > 0; left -= renewal) {
        const std::chrono::duration<double> pause(std::min(left, renewal));
        if (done_changed_.wait_for(lock, pause, [this] { return done_; })) return true;
        renew(start);
    }
    return false;
}

/// Only one rank should print: the reporter (Arrivals::reporter). Ranks time out one after the other, in the
/// order of their numbers, and the launcher ends all ranks when the reporter exits. A rank that was started
/// earlier than the reporter may still time out before the reporter does. If that rank exited, the launcher
/// would end the reporter before it prints. Every rank but the reporter therefore waits another
/// kSecondsForReporter. If the job still runs after that, the rank prints its own message.
void BoundedCall::watch(const Environment::Start& start) {
    constexpr double kSecondsBetweenRanks = 0.5, kSecondsForReporter = 10;
    constexpr int kMaxTurns = 20;
    const double turn = std::clamp(start.rank, 0, kMaxTurns) * kSecondsBetweenRanks;
    if (returns_within(start.seconds + turn, start)) return;
    const Arrivals found = read_arrivals(start);
    const bool other_reports = found.reporter >= 0 && found.reporter != start.rank;
    if (other_reports && returns_within(kSecondsForReporter, start)) return;
    fmt::print(stderr, "{}: error: {} took more than {} s (ARGOSY_START_SECONDS); {}\n",
               program_invocation_short_name, what_, start.seconds,
               found.missing.empty() ? "a rank did not reach this call, or this rank hangs in it"
                                     : named_missing(found.missing));
    std::fflush(stderr);
    _exit(static_cast<int>(ExitCode::Watchdog));
}

void all_gather_bytes_at_start(const Comm& ranks, void* all, std::span<const std::byte> own,
                               const std::string& what) {
    const BoundedCall call("the exchange of " + what);
    wait(ranks.all_gather(all, own.data(), own.size(), ElementType::UInt8));
}

}  // namespace argosy::mpi
