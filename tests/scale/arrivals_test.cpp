// The folder ARGOSY_ARRIVALS of a job with many nodes: its number of files, and the missing ranks that one
// rank names. The ranks are processes that follow each other. ARGOSY_SCALE_RANKS sets their number.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <set>

#include "base/error.h"
#include "mpi/start_up.h"
#include "scratch_folder.h"

namespace argosy::mpi {
namespace {

namespace fs = std::filesystem;

constexpr int kRanksOfNode = 8;

int num_ranks() {
    const char* const number = std::getenv("ARGOSY_SCALE_RANKS");
    return number ? std::atoi(number) : 512;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class Arrivals : public ::testing::Test {
  protected:
    /// Runs `work` in a process of its own, as a rank with a time limit; 0: none.
    template <class Work>
    pid_t start(int rank, int limit_seconds, Work work) const {
        const pid_t process = fork();
        if (process != 0) return process;
        const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
        set("OMPI_COMM_WORLD_RANK", std::to_string(rank));
        set("OMPI_COMM_WORLD_SIZE", std::to_string(num_ranks()));
        set("SLURMD_NODENAME", fmt::format("node{:05}", rank / kRanksOfNode));
        set("ARGOSY_ARRIVALS", folder_ / "arrivals");
        set("ARGOSY_START_SECONDS", std::to_string(limit_seconds));
        const std::string errors = folder_ / fmt::format("errors.{}", rank);
        if (limit_seconds > 0) dup2(open(errors.c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
        work();
        _exit(0);
    }

    static int code_of(pid_t process) {
        int status = 0;
        waitpid(process, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }

    /// A rank that leaves the call, or that stops in it.
    void come(int rank, bool leaves) const {
        EXPECT_EQ(code_of(start(rank, 0,
                                [leaves] {
                                    BoundedCall* const call = new BoundedCall("a call");
                                    if (leaves) delete call;
                                })),
                  0);
    }

    ScratchFolder folder_;
};

TEST_F(Arrivals, HaveAFileForEachNodeAndOneRankNamesTheMissing) {
    const int middle = num_ranks() / 2, last = num_ranks() - 1;
    std::set<int> missing = {3, last};
    for (int rank = middle; rank < middle + kRanksOfNode; ++rank) missing.insert(rank);  // a whole node
    const std::set<int> waiting = {0, 9};
    auto began = std::chrono::steady_clock::now();
    come(5, /*leaves=*/false);
    for (int rank = 0; rank < num_ranks(); ++rank)
        if (rank != 5 && !missing.contains(rank) && !waiting.contains(rank)) come(rank, /*leaves=*/true);
    missing.insert(5);
    const double seconds_to_come = seconds_since(began);
    usleep(600'000);  // longer than a line of a rank that stopped counts

    began = std::chrono::steady_clock::now();
    const auto wait = [] {
        const BoundedCall call("a call");
        pause();
    };
    const pid_t first = start(0, 2, wait), other = start(9, 2, wait);
    EXPECT_EQ(code_of(first), static_cast<int>(ExitCode::Watchdog));
    const double seconds_to_name = seconds_since(began) - 2;
    kill(other, SIGKILL);
    code_of(other);

    const std::vector<int> named(missing.begin(), missing.end());
    EXPECT_EQ(read_file(folder_ / "errors.0").substr(read_file(folder_ / "errors.0").find("; ")),
              "; " + named_missing(named) + "\n");
    EXPECT_EQ(read_file(folder_ / "errors.9"), "") << "one rank reports";
    int num_files = 0;
    for (const auto& entry : fs::directory_iterator(folder_ / "arrivals"))
        num_files += !entry.path().filename().string().starts_with('.');
    EXPECT_EQ(num_files, num_ranks() / kRanksOfNode - 1);
    std::cout << fmt::format(
        "{} ranks: {} files, made in {:.1f} s; the missing ranks are named after {:.2f} s\n", num_ranks(),
        num_files, seconds_to_come, seconds_to_name);
}

}  // namespace
}  // namespace argosy::mpi
