#include "watch/watchdog.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/patience.h"
#include "cuda/device.h"
#include "watch/verdict.h"
#include "watch/watch_connections.h"

namespace argosy::watch {
namespace {

constexpr double kMaxSecondsBetweenLooks = 1, kMinSecondsBetweenLooks = 0.01;

/// Time for the ranks' answers, round trip included; the same as in mpi/roll.cpp.
constexpr double kSecondsToAnswer = 2, kMoreSecondsPerRank = 0.002;

constexpr std::chrono::seconds kTimeToBreakOff{2}, kTimeToLeave{1};

// If rank 0 does not answer, the other ranks report one after the other, because the first rank that exits
// takes the job down. The reporting rank exits at once, without aborting NCCL; otherwise the next rank would
// report in the meantime.
constexpr double kSecondsBetweenTurns = 2.5;
constexpr int kMaxTurns = 20;

// The first letter of a message: kLate asks rank 0 to check all ranks, kAsk asks a rank for its report,
// kReport carries this report, kNothingLate says that nothing is late, kEnd ends the receiver's process, kBye
// says that the sender leaves in order.
constexpr char kLate = 'l', kAsk = 'a', kReport = 'r', kNothingLate = 'c', kEnd = 'e', kBye = 'b';

double seconds_between_looks(double timeout_seconds) {
    return std::clamp(timeout_seconds / 40, kMinSecondsBetweenLooks, kMaxSecondsBetweenLooks);
}

std::chrono::duration<double> duration(double seconds) { return std::chrono::duration<double>(seconds); }

}  // namespace

/// The state that both threads share.
struct Watchdog::State {
    /// The last report of the thread that queries CUDA, and its time.
    struct Sight {
        WatchReport report;
        double at_seconds = 0;
    };

    State(const mpi::Comm& world, std::shared_ptr<GpuSide> its_gpu, double its_timeout_seconds)
        : gpu(std::move(its_gpu)), timeout_seconds(its_timeout_seconds), star(world) {
        sight.report.seconds_to_limit = timeout_seconds;
    }

    /// look() is the loop of the thread that queries CUDA, look_once() one pass of it.
    void look(int device);
    WatchReport look_once(double elapsed_seconds) const;
    [[noreturn]] void end_process() const;

    /// Returns false once this rank leaves.
    bool sleep(double seconds) {
        std::unique_lock lock(mutex);
        return !changed.wait_for(lock, duration(seconds), [this] { return leaving; });
    }
    bool is_leaving() const {
        const std::lock_guard lock(mutex);
        return leaving;
    }
    Sight last_sight() const {
        const std::lock_guard lock(mutex);
        return sight;
    }
    void see(WatchReport report) {
        const std::lock_guard lock(mutex);
        sight = {std::move(report), seconds_now()};
    }
    void set(bool& what) {
        const std::lock_guard lock(mutex);
        what = true;
        changed.notify_all();
    }
    bool wait_for(const bool& what) {
        std::unique_lock lock(mutex);
        return changed.wait_for(lock, kTimeToLeave, [&] { return what; });
    }

    const std::shared_ptr<GpuSide> gpu;
    const double timeout_seconds;
    WatchConnections star;
    mutable std::mutex mutex;
    std::condition_variable changed;
    bool leaving = false, looks_end = false, talks_end = false;
    Sight sight;
};

/// The thread that exchanges messages with other ranks and decides, until this rank leaves or the job ends.
/// On rank 0, collect_reports() collects the reports of all ranks and ends the job if an operation is late.
/// On another rank, ask_rank_0() asks rank 0 to do so; report_alone() ends the job if rank 0 does not answer.
class Watchdog::Talk {
  public:
    explicit Talk(State& dog)
        : dog_(dog),
          connections_(dog.star),
          seconds_to_answer_(
              std::min(dog.timeout_seconds, kSecondsToAnswer + kMoreSecondsPerRank * connections_.size())),
          pause_seconds_(seconds_between_looks(dog.timeout_seconds)) {}

    void run() {
        while (!dog_.is_leaving()) {
            take(connections_.receive(pause_seconds_));
            const WatchReport own = report();
            const bool late = own.seconds_to_limit < 0 || (!own.error.empty() && !someone_has_left_);
            if (connections_.rank() == 0) {
                if (late || someone_is_late_) collect_reports();
            } else if (late && !complains_) {
                ask_rank_0();
            }
            if (complains_ && !complains_->lasts()) report_alone(own);
        }
        for (int rank = 0; rank < connections_.size(); ++rank) connections_.send(rank, {kBye});
    }

  private:
    /// This rank's report. If the other thread has been blocked in CUDA for longer than the timeout, the
    /// report contains an error.
    WatchReport report() {
        State::Sight sight = dog_.last_sight();
        if (sight.at_seconds != last_sight_seconds_) {
            last_sight_seconds_ = sight.at_seconds;
            blind_.emplace(dog_.timeout_seconds);
        }
        if (!blind_->lasts()) {
            sight.report.error =
                fmt::format("the GPU's driver has not answered for {} s", dog_.timeout_seconds);
        }
        return sight.report;
    }

    void take(const std::vector<WatchConnections::Message>& messages) {
        std::vector<int> lost;
        for (const auto& [sender, text, closed] : messages) {
            if (closed) {
                // After one rank has left in order, closed connections of others are expected.
                if (!someone_has_left_ && !dog_.is_leaving()) lost.push_back(sender);
                gone_.insert(sender);
                continue;
            }
            try {
                take(sender, text);
            } catch (const std::exception&) {
                connections_.drop(sender);  // its message cannot be parsed
            }
        }
        if (lost.empty()) return;
        if (connections_.rank() != 0) wait_for_turn();
        end_all(verdict_of_loss(lost));
    }

    void take(int sender, const std::string& text) {
        switch (text.at(0)) {
            case kLate:
                someone_is_late_ = true;
                break;
            case kAsk:
                connections_.send(0, kReport + report().text());
                break;
            case kReport:
                reports_[sender] = WatchReport::of_text(text.substr(1));
                break;
            case kNothingLate:
                complains_.reset();
                break;
            case kBye:
                someone_has_left_ = true;
                break;
            case kEnd:
                dog_.end_process();
        }
    }

    void collect_reports() {
        someone_is_late_ = false;
        reports_ = {{0, report()}};
        size_t num_asked = 0;
        for (int rank = 1; rank < connections_.size(); ++rank) {
            if (!connections_.reaches(rank)) continue;
            connections_.send(rank, {kAsk});
            if (connections_.reaches(rank)) ++num_asked;
        }
        Patience patience(seconds_to_answer_);
        while (reports_.size() < num_asked + 1 && patience.lasts() && !dog_.is_leaving()) {
            take(connections_.receive(seconds_to_answer_ / 40));
        }
        if (dog_.is_leaving()) return;
        Watched watched{connections_.size(), dog_.timeout_seconds, reports_, {}};
        for (int rank = 1; rank < connections_.size(); ++rank) {
            if (!connections_.reaches(rank) && !gone_.contains(rank)) watched.apart.push_back(rank);
        }
        if (someone_has_left_) {
            // The rank that left may have had an error, which it prints itself. NCCL errors on other ranks
            // are only its consequence.
            for (auto& [rank, report] : watched.reports) report.error.clear();
        }
        if (const auto text = verdict(watched)) end_all(*text);
        for (int rank = 1; rank < connections_.size(); ++rank) connections_.send(rank, {kNothingLate});
    }

    void ask_rank_0() {
        connections_.send(0, {kLate});
        complains_.emplace(3 * seconds_to_answer_);
    }

    void report_alone(const WatchReport& own) {
        wait_for_turn();
        end_all(own.error.empty() ? verdict_alone(own, dog_.timeout_seconds) : own.error);
    }

    void wait_for_turn() const {
        std::this_thread::sleep_for(
            duration(std::min(connections_.rank() - 1, kMaxTurns) * kSecondsBetweenTurns));
    }

    [[noreturn]] void end_all(const std::string& message) {
        dog_.gpu->end();
        fmt::print(stderr, "{}: error on rank {} of {}: {}\n", program_invocation_short_name,
                   connections_.rank(), connections_.size(), message);
        std::fflush(stderr);
        for (int rank = 0; rank < connections_.size(); ++rank) connections_.send(rank, {kEnd});
        if (connections_.rank() != 0) _exit(static_cast<int>(ExitCode::Watchdog));
        dog_.end_process();
    }

    State& dog_;
    WatchConnections& connections_;
    const double seconds_to_answer_, pause_seconds_;
    double last_sight_seconds_ = -1;
    std::optional<Patience> blind_;  // restarts with each new report of the other thread
    bool someone_is_late_ = false, someone_has_left_ = false;
    std::set<int> gone_;
    std::map<int, WatchReport> reports_;
    std::optional<Patience> complains_;  // time that rank 0 has to answer this rank's complaint
};

Watchdog::Watchdog(const mpi::Comm& world, std::shared_ptr<GpuSide> gpu, double timeout_seconds)
    : state_(std::make_shared<State>(world, std::move(gpu), timeout_seconds)) {
    looks_ = std::thread([state = state_, device = cuda::current_device()] {
        state->look(device);
        state->set(state->looks_end);
    });
    talks_ = std::thread([state = state_] {
        try {
            Talk(*state).run();
        } catch (const std::exception& error) {
            spdlog::warn("the watchdog of rank {} no longer watches: {}", state->star.rank(), error.what());
        }
        state->set(state->talks_end);
    });
}

Watchdog::~Watchdog() {
    leave();
    for (auto [thread, ends] :
         {std::pair(&talks_, &state_->talks_end), std::pair(&looks_, &state_->looks_end)}) {
        state_->wait_for(*ends) ? thread->join() : thread->detach();
    }
}

void Watchdog::leave() {
    if (state_->is_leaving()) return;
    state_->set(state_->leaving);
    state_->star.wake();
    state_->wait_for(state_->talks_end);
    state_->gpu->block_if_ending();  // does not return if the watchdog is ending the process
}

void Watchdog::State::look(int device) {
    const double pause = seconds_between_looks(timeout_seconds);
    bool warned = false;
    for (double last = seconds_now(); sleep(pause);) {
        const double now = seconds_now();
        WatchReport report{.queues = {}, .error = "", .seconds_to_limit = timeout_seconds};
        try {
            cuda::set_device(device);
            report = look_once(std::min(now - last, 2 * pause));
        } catch (const Error& error) {
            // The thread that works on the GPU gets the same error. If it does not, the other ranks wait for
            // this rank and report it.
            if (!std::exchange(warned, true)) {
                spdlog::warn("the watchdog of rank {} does not see what its GPU does: {}", star.rank(),
                             error.what());
            }
        }
        see(std::move(report));
        last = now;
    }
}

WatchReport Watchdog::State::look_once(double elapsed_seconds) const {
    WatchReport report{.queues = {}, .error = "", .seconds_to_limit = timeout_seconds};
    for (const auto& queue : gpu->queues()) {
        report.queues.push_back(queue->look(elapsed_seconds));
        const auto& under_way = report.queues.back().under_way;
        if (!under_way) continue;
        report.seconds_to_limit =
            std::min(report.seconds_to_limit, timeout_seconds - under_way->waited_seconds);
    }
    for (const auto& lane : gpu->lanes()) {
        try {
            lane->require_health();
        } catch (const RunError& error) {
            report.error = error.what();
        }
    }
    return report;
}

/// An abort of NCCL may hang, so the process exits after kTimeToBreakOff at the latest.
void Watchdog::State::end_process() const {
    gpu->end();
    const auto broken_off = std::make_shared<std::atomic<bool>>(false);
    std::thread([gpu = gpu, broken_off] {
        for (const auto& lane : gpu->lanes()) lane->abort();
        *broken_off = true;
    }).detach();
    Patience patience(std::chrono::duration<double>(kTimeToBreakOff).count());
    while (!*broken_off && patience.pause()) {
    }
    _exit(static_cast<int>(ExitCode::Watchdog));
}

}  // namespace argosy::watch
