// Watchdogs of many ranks join, answer rank 0 and leave, and one of them dies, on this machine alone:
// watch_tree_scale NUM_RANKS FAN_OUT. A few processes hold all ranks: one holds rank 0, one those between,
// each with a thread of its own, and the others hold the leaves. Prints a line of times; ends with 1 and a
// message if something is wrong. A fan-out of NUM_RANKS is a star.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <list>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "watch/watch_tree.h"

namespace argosy::watch {
namespace {

constexpr int kLeafProcesses = 8, kThreadsPerProcess = 32, kMaxBetween = 1024;
constexpr double kMaxSeconds = 100;
const std::string kReport(400, 'r');  // as long as a report of a rank with a dozen queues

/// What the processes share.
struct Shared {
    WatchConnections::ServerAddress addresses[kMaxBetween];  // of rank 0 and those between
    std::atomic<int> num_listening = 0, num_tried = 0, num_connected = 0;
    std::atomic<bool> dies = false;
};

void wait_until(const auto& done) {
    while (!done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

class Scale {
  public:
    Scale(int size, int fan_out) : size_(size), fan_out_(fan_out) {
        void* const memory =
            mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        shared_ = new (memory) Shared;
        num_between_ = (size - 2) / fan_out;  // the parent of the last rank is the last one with children
    }

    int run() {
        if (num_between_ >= kMaxBetween) return fail("too many ranks between");
        WatchTree rank_0(place_of(0));
        const double start = seconds_now();
        listen(rank_0);
        std::vector<pid_t> children;
        for (int process = 0; process <= kLeafProcesses; ++process) {
            children.push_back(fork());
            if (children.back() == 0) hold_ranks(process);
        }
        rank_0.accept_until([&] { return shared_->num_tried == size_ - 1; });
        const double joined = seconds_now();
        const int code = check(rank_0, joined - start);
        for (const pid_t child : children) kill(child, SIGKILL);
        for (const pid_t child : children) waitpid(child, nullptr, 0);
        return code;
    }

  private:
    TreePlace place_of(int rank) const { return {rank, size_, fan_out_}; }

    static int fail(const std::string& why) {
        fmt::print(stderr, "watch_tree_scale: {}\n", why);
        return 1;
    }

    void listen(WatchTree& rank) {
        shared_->addresses[rank.rank()] = rank.listen(/*one_node=*/true);
        ++shared_->num_listening;
    }
    void join(WatchTree& rank) {
        const int parent = rank.parent_of(rank.rank());
        rank.join(shared_->addresses[parent]);
        if (rank.reaches(0)) ++shared_->num_connected;
        ++shared_->num_tried;
    }

    /// Rank 0 asks all ranks, hears that the last one has died, and that all others leave.
    int check(WatchTree& rank_0, double join_seconds) {
        const int num_connected = shared_->num_connected;
        if (num_connected != size_ - 1)
            return fail(fmt::format("{} of {} ranks have connected in {:.2f} s", num_connected, size_ - 1,
                                    join_seconds));
        double start = seconds_now();
        rank_0.send_to_all("ask");
        std::set<int> answered;
        const bool all_answer = receive(rank_0, [&](const WatchTree::Message& one) {
            if (one.text == kReport) answered.insert(one.sender);
            return std::ssize(answered) == size_ - 1;
        });
        const double answer_seconds = seconds_now() - start;
        if (!all_answer) return fail(fmt::format("{} ranks have answered", answered.size()));
        start = seconds_now();
        shared_->dies = true;
        const bool dead =
            receive(rank_0, [&](const auto& one) { return one.closed && one.sender == size_ - 1; });
        const double death_seconds = seconds_now() - start;
        if (!dead) return fail("rank 0 has not heard of the rank that died");
        start = seconds_now();
        rank_0.send_to_all("leave");
        std::set<int> left, closed;
        const bool all_leave = receive(rank_0, [&](const WatchTree::Message& one) {
            if (one.closed && !left.contains(one.sender)) closed.insert(one.sender);
            if (one.text == "leave") left.insert(one.sender);
            return std::ssize(left) == size_ - 2;
        });
        if (!all_leave || !closed.empty())
            return fail(fmt::format("{} ranks have left, {} have closed before", left.size(), closed.size()));
        fmt::print(
            "{} ranks, fan-out {}: at most {} connections to a rank; join {:.2f} s, reports of all {:.2f} s, "
            "death known after {:.3f} s, leave {:.2f} s\n",
            size_, fan_out_, std::min(size_ - 1, fan_out_), join_seconds, answer_seconds, death_seconds,
            seconds_now() - start);
        return 0;
    }

    /// Handles messages until `done` returns true. Returns false after kMaxSeconds.
    static bool receive(WatchTree& rank, const auto& done) {
        for (const double start = seconds_now(); seconds_now() - start < kMaxSeconds;)
            for (const auto& one : rank.receive(0.1))
                if (done(one)) return true;
        return false;
    }

    /// Answers rank 0. Returns whether the rank leaves.
    static bool answer(WatchTree& rank, double seconds) {
        for (const auto& one : rank.receive(seconds)) {
            if (one.text == "ask") rank.send(0, kReport);
            if (one.text == "leave" && one.sender == 0) {
                rank.send_to_all("leave");
                rank.flush();
                return true;
            }
        }
        return false;
    }

    [[noreturn]] void hold_ranks(int process) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        process == 0 ? hold_between() : hold_leaves(process - 1);
        _exit(0);
    }

    void hold_between() {
        // Linux enlarges the table of open files of a process with threads only after all cores have passed
        // through its scheduler, which takes seconds on a crowded machine. A table of a rank is small.
        close(dup2(STDERR_FILENO, std::min(size_ + 4 * num_between_ + 64, getdtablesize() - 1)));
        std::vector<std::thread> threads;
        for (int rank = 1; rank <= num_between_; ++rank)
            threads.emplace_back([this, rank] {
                WatchTree own(place_of(rank));
                listen(own);
                wait_until([&] { return shared_->num_listening > num_between_; });
                join(own);
                own.accept_until([&] { return shared_->num_tried == size_ - 1; });
                while (!answer(own, 1)) {
                }
                own.relay();
            });
        for (std::thread& thread : threads) thread.join();
    }

    /// Threads join at the same time, as ranks do.
    void hold_leaves(int process) {
        std::list<WatchTree> ranks;
        std::vector<WatchTree*> by_number;
        for (int rank = num_between_ + 1 + process; rank < size_; rank += kLeafProcesses)
            by_number.push_back(&ranks.emplace_back(place_of(rank)));
        wait_until([&] { return shared_->num_listening > num_between_; });
        std::vector<std::thread> threads;
        for (size_t first = 0; first < kThreadsPerProcess; ++first)
            threads.emplace_back([&, first] {
                for (size_t i = first; i < by_number.size(); i += kThreadsPerProcess) join(*by_number[i]);
            });
        for (std::thread& thread : threads) thread.join();
        while (!ranks.empty()) {
            ranks.remove_if(
                [&](WatchTree& one) { return (one.rank() == size_ - 1 && shared_->dies) || answer(one, 0); });
        }
    }

    int size_, fan_out_, num_between_;
    Shared* shared_;
};

}  // namespace
}  // namespace argosy::watch

int main(int /*argc*/, char** argv) {
    return argosy::watch::Scale(std::atoi(argv[1]), std::atoi(argv[2])).run();
}
