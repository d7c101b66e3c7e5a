#include "comm/watchdog.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/patience.h"
#include "cuda/device.h"

namespace argosy::comm {
namespace {

constexpr double kMostSecondsBetweenLooks = 1, kLeastSecondsBetweenLooks = 0.01;

/// As a roll's answers; in part for the way there and back.
constexpr double kSecondsToAnswer = 2, kMoreSecondsPerRank = 0.002;

constexpr std::chrono::seconds kTimeToBreakOff{2};

// Without rank 0 the others speak one after the other, since the first that ends takes the job down.
constexpr double kSecondsBetweenTurns = 0.5;
constexpr int kMostTurns = 20;

// The first letter of a message.
constexpr char kLate = 'l', kAsk = 'a', kReport = 'r', kCalm = 'c', kEnd = 'e', kBye = 'b';

double seconds_between_looks(double timeout_seconds) {
    return std::clamp(timeout_seconds / 40, kLeastSecondsBetweenLooks, kMostSecondsBetweenLooks);
}

std::chrono::duration<double> duration(double seconds) { return std::chrono::duration<double>(seconds); }

}  // namespace

/// What the thread that talks does, until this rank leaves or the job ends.
class Watchdog::Talk {
  public:
    explicit Talk(Watchdog& dog)
        : dog_(dog),
          star_(dog.star_),
          seconds_to_answer_(
              std::min(dog.timeout_seconds_, kSecondsToAnswer + kMoreSecondsPerRank * star_.size())),
          pause_seconds_(seconds_between_looks(dog.timeout_seconds_)) {}

    void run() {
        while (!leaving()) {
            take(star_.receive(pause_seconds_));
            const WatchReport own = report();
            const bool late = own.seconds_to_limit < 0 || (!own.error.empty() && !someone_has_left_);
            if (star_.rank() == 0) {
                if (late || someone_is_late_) hold_court();
            } else if (late && !complains_) {
                complain();
            }
            if (complains_ && !complains_->lasts()) speak_alone(own);
        }
        for (int rank = 0; rank < star_.size(); ++rank) star_.send(rank, {kBye});
    }

  private:
    bool leaving() const {
        const std::lock_guard lock(dog_.mutex_);
        return dog_.leaving_;
    }

    /// Of this rank. Time counts in which the other thread has not come back from CUDA, too.
    WatchReport report() {
        Sight sight = dog_.sight();
        if (sight.at_seconds != last_sight_seconds_) {
            last_sight_seconds_ = sight.at_seconds;
            blind_.emplace(dog_.timeout_seconds_);
        }
        if (!blind_->lasts()) {
            sight.report.error =
                fmt::format("the GPU's driver has not answered for {} s", dog_.timeout_seconds_);
        }
        return sight.report;
    }

    void take(const std::vector<WatchStar::Message>& messages) {
        std::vector<int> lost;
        for (const auto& [sender, text, closed] : messages) {
            if (closed) {
                // Once one has left in order, the others do as well, each in its own way.
                if (!someone_has_left_ && !leaving()) lost.push_back(sender);
                gone_.insert(sender);
                continue;
            }
            switch (text.at(0)) {
                case kLate:
                    someone_is_late_ = true;
                    break;
                case kAsk:
                    star_.send(0, kReport + report().text());
                    break;
                case kReport:
                    reports_[sender] = WatchReport::of_text(text.substr(1));
                    break;
                case kCalm:
                    complains_.reset();
                    break;
                case kBye:
                    someone_has_left_ = true;
                    break;
                case kEnd:
                    dog_.end_process();
            }
        }
        if (lost.empty()) return;
        if (star_.rank() != 0) wait_for_turn();
        end_all(verdict_of_loss(lost));
    }

    void hold_court() {
        someone_is_late_ = false;
        reports_ = {{0, report()}};
        size_t num_asked = 0;
        for (int rank = 1; rank < star_.size(); ++rank) {
            if (!star_.reaches(rank)) continue;
            star_.send(rank, {kAsk});
            ++num_asked;
        }
        Patience patience(seconds_to_answer_);
        while (reports_.size() < num_asked + 1 && patience.lasts() && !leaving()) {
            take(star_.receive(seconds_to_answer_ / 40));
        }
        if (leaving()) return;
        Watched watched{star_.size(), dog_.timeout_seconds_, reports_, {}};
        for (int rank = 1; rank < star_.size(); ++rank) {
            if (!star_.reaches(rank) && !gone_.contains(rank)) watched.apart.push_back(rank);
        }
        if (someone_has_left_) {
            // With an error of its own, maybe: that is what NCCL then meets.
            for (auto& [rank, report] : watched.reports) report.error.clear();
        }
        if (const auto text = verdict(watched)) end_all(*text);
        for (int rank = 1; rank < star_.size(); ++rank) star_.send(rank, {kCalm});
    }

    void complain() {
        star_.send(0, {kLate});
        complains_.emplace(3 * seconds_to_answer_);
    }

    void speak_alone(const WatchReport& own) {
        wait_for_turn();
        end_all(own.error.empty() ? verdict_alone(own, dog_.timeout_seconds_) : own.error);
    }

    void wait_for_turn() const {
        std::this_thread::sleep_for(duration(std::min(star_.rank() - 1, kMostTurns) * kSecondsBetweenTurns));
    }

    [[noreturn]] void end_all(const std::string& message) {
        dog_.gpu_->end();
        fmt::print(stderr, "{}: error on rank {} of {}: {}\n", program_invocation_short_name, star_.rank(),
                   star_.size(), message);
        std::fflush(stderr);
        for (int rank = 0; rank < star_.size(); ++rank) star_.send(rank, {kEnd});
        dog_.end_process();
    }

    Watchdog& dog_;
    WatchStar& star_;
    const double seconds_to_answer_, pause_seconds_;
    double last_sight_seconds_ = -1;
    std::optional<Patience> blind_;  // since the last sight
    bool someone_is_late_ = false, someone_has_left_ = false;
    std::set<int> gone_;
    std::map<int, WatchReport> reports_;
    std::optional<Patience> complains_;  // with rank 0, that it answers
};

Watchdog::Watchdog(const mpi::Comm& world, std::shared_ptr<GpuSide> gpu, double timeout_seconds)
    : gpu_(std::move(gpu)), timeout_seconds_(timeout_seconds), star_(world) {
    sight_.report.seconds_to_limit = timeout_seconds;
    looks_ = std::thread([this, device = cuda::current_device()] { look(device); });
    talks_ = std::thread([this] { Talk(*this).run(); });
}

Watchdog::~Watchdog() {
    {
        const std::lock_guard lock(mutex_);
        leaving_ = true;
    }
    leaving_changed_.notify_all();
    star_.wake();
    talks_.join();
    looks_.join();
}

/// False once this rank leaves.
bool Watchdog::sleep(double seconds) {
    std::unique_lock lock(mutex_);
    return !leaving_changed_.wait_for(lock, duration(seconds), [this] { return leaving_; });
}

Watchdog::Sight Watchdog::sight() const {
    const std::lock_guard lock(mutex_);
    return sight_;
}

void Watchdog::look(int device) {
    const double pause = seconds_between_looks(timeout_seconds_);
    try {
        cuda::set_device(device);
        for (double last = seconds_now(); sleep(pause);) {
            const double now = seconds_now();
            look_once(std::min(now - last, 2 * pause));
            last = now;
        }
    } catch (const Error& error) {
        // The thread that works on the GPU meets it as well; if it does not, others wait for it.
        spdlog::warn("the watchdog of rank {} can no longer look at its GPU: {}", star_.rank(), error.what());
        while (sleep(pause)) {
            const std::lock_guard lock(mutex_);
            sight_.at_seconds = seconds_now();
        }
    }
}

void Watchdog::look_once(double elapsed_seconds) {
    WatchReport report{.lines = {}, .error = "", .seconds_to_limit = timeout_seconds_};
    for (const auto& line : gpu_->lines()) {
        report.lines.push_back(line->look(elapsed_seconds));
        const auto& under_way = report.lines.back().under_way;
        if (!under_way) continue;
        report.seconds_to_limit =
            std::min(report.seconds_to_limit, timeout_seconds_ - under_way->waited_seconds);
    }
    for (const auto& lane : gpu_->lanes()) {
        try {
            lane->require_health();
        } catch (const RunError& error) {
            report.error = error.what();
        }
    }
    const std::lock_guard lock(mutex_);
    sight_ = {std::move(report), seconds_now()};
}

/// NCCL may hang in breaking off, and nobody waits for it long.
void Watchdog::end_process() {
    gpu_->end();
    const auto broken_off = std::make_shared<std::atomic<bool>>(false);
    std::thread([gpu = gpu_, broken_off] {
        for (const auto& lane : gpu->lanes()) lane->break_off();
        *broken_off = true;
    }).detach();
    Patience patience(std::chrono::duration<double>(kTimeToBreakOff).count());
    while (!*broken_off && patience.pause()) {
    }
    _exit(static_cast<int>(ExitCode::Watchdog));
}

}  // namespace argosy::comm
