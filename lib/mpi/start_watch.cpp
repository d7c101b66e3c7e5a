#include "mpi/start_watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

#include "base/error.h"

namespace argosy::mpi {
namespace {

namespace fs = std::filesystem;

/// Numbers that ranks left there.
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

StartWatch::StartWatch(const char* program, const Environment::Start& start)
    : program_(program), start_(start) {
    if (!start_.arrivals.empty() && start_.rank >= 0) {
        std::ofstream(fs::path(start_.arrivals) / std::to_string(start_.rank));  // for a message: may fail
    }
    if (start_.seconds > 0) thread_ = std::thread([this] { watch(); });
}

StartWatch::~StartWatch() {
    {
        const std::lock_guard lock(mutex_);
        up_ = true;
    }
    up_changed_.notify_one();
    if (thread_.joinable()) thread_.join();
}

void StartWatch::watch() {
    std::unique_lock lock(mutex_);
    if (!up_changed_.wait_for(lock, std::chrono::seconds(start_.seconds), [this] { return up_; })) give_up();
}

/// One of those that came speaks for all; without a folder nobody knows of the others.
void StartWatch::give_up() const {
    const std::set<int> arrived = numbers_in(start_.arrivals);
    if (arrived.empty() || *arrived.begin() == start_.rank) {
        std::vector<int> missing;
        for (int rank = 0; !arrived.empty() && rank < start_.num_ranks; ++rank) {
            if (!arrived.contains(rank)) missing.push_back(rank);
        }
        const std::string who = missing.empty() ? "a rank did not come to it"
                                                : fmt::format("missing: rank {}", fmt::join(missing, ", "));
        fmt::print(stderr,
                   "{}: error: MPI did not start within {} s on {} ranks (ARGOSY_START_SECONDS sets the "
                   "limit); {}\n",
                   program_, start_.seconds, start_.num_ranks, who);
        std::fflush(stderr);
    }
    _exit(static_cast<int>(ExitCode::Watchdog));
}

}  // namespace argosy::mpi
