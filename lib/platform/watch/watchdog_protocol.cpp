// The thread of a watchdog that exchanges messages with the watchdogs of other ranks.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "watch/root_cause.h"
#include "watch/watchdog_state.h"

namespace argosy::watch {
namespace {

// If rank 0 does not answer, the other ranks report in turn, because the first rank that exits takes the job
// down. A rank that has reported exits at once, without aborting NCCL, before the next rank's turn.
constexpr double kSecondsBetweenTurns = 2.5;
constexpr int kMaxTurns = 20;

/// The first byte of a message.
enum class Message : char {
    RankIsLate,   // to rank 0: a wait of the sender is late, check all ranks
    AskReport,    // from rank 0, answered by RankReport
    RankReport,   // the sender's waits and operations (report.h)
    NothingLate,  // from rank 0: it has checked all ranks
    FailWaits,    // from rank 0: which ranks are late; the receiver's waits fail
    End,          // the receiver's process ends
    Leave,        // the sender leaves in order
    AskOps,       // from rank 0: write your last operations to your file; answered by Ops
    Ops,          // the sender's last operations
    FileWritten,  // the sender's file is written, or why it is not
};

std::string message(Message kind, const std::string& content = {}) {
    return static_cast<char>(kind) + content;
}

}  // namespace

/// The thread that exchanges messages with other ranks, until this rank leaves or the job ends. On rank 0,
/// end_late_waits() collects the reports of all ranks and ends the job if a wait is late. On any other rank,
/// ask_rank_0() asks rank 0 to do so, and report_alone() ends the job if rank 0 does not answer.
class Watchdog::Protocol {
  public:
    explicit Protocol(std::shared_ptr<State> state)
        : shared_state_(std::move(state)),
          state_(*shared_state_),
          connections_(*state_.connections),
          bounds_(state_.limit().seconds, connections_.size()),
          pause_seconds_(seconds_between_polls(state_.limit().seconds)) {
        if (state_.gpu) state_.gpu->set_seconds_to_root_cause(bounds_.root_cause);
    }

    void run() {
        while (!state_.is_leaving()) {
            handle(connections_.receive(pause_seconds_));
            if (connections_.rank() != 0 && file_is_new())
                connections_.send(0, message(Message::FileWritten, state_.flight_file.error()));
            const RankReport own = report();
            const bool fails = !own.error.empty() && !any_rank_left_;
            const bool late = fails || (own.is_late() && !(quiet_ && quiet_->has_time_left()));
            if (connections_.rank() == 0) {
                if (late || any_rank_late_) end_late_waits();
            } else if (late && !silence_) {
                ask_rank_0();
            }
            if (!silence_) continue;
            if (!silence_->timer.has_time_left()) report_alone(own);
            // Half of the time is left for the file, so the report need not wait for it.
            if (silence_->timer.waited_seconds() > bounds_.answer && !silence_->file_is_begun)
                write_file(time_of_hang());
        }
    }

    void send_notice() {
        connections_.send_to_all(message(Message::Leave));
        connections_.flush();
    }

  private:
    struct Silence {
        PollTimer timer;  // starts again with each question of rank 0
        bool file_is_begun = false;
    };

    /// This rank's report. If the thread that queries CUDA has been blocked for longer than the timeout, the
    /// report contains an error.
    RankReport report() {
        RankReport own;
        if (state_.gpu) {
            State::GpuReport latest = state_.last_gpu_report();
            if (latest.at_seconds != last_report_seconds_) {
                last_report_seconds_ = latest.at_seconds;
                driver_seconds_ = state_.limit().seconds;
                driver_timer_.emplace(driver_seconds_);
            }
            own = std::move(latest.report);
            if (!driver_timer_->has_time_left()) {
                own.error = fmt::format("the GPU's driver has not answered for {} s", driver_seconds_);
            }
        }
        for (WaitReport& wait : state_.waits.poll()) own.waits.push_back(std::move(wait));
        own.storage = state_.waits.storage();
        return own;
    }

    void handle(const std::vector<WatchTree::Message>& messages) {
        std::vector<int> lost;
        for (const auto& [sender, text, closed] : messages) {
            if (closed) {
                // After one rank has left in order, closed connections of others are expected.
                if (!any_rank_left_ && !state_.is_leaving()) lost.push_back(sender);
                disconnected_.insert(sender);
                continue;
            }
            try {
                handle(sender, text);
            } catch (const std::exception&) {
                connections_.drop(sender);  // the message cannot be parsed
            }
        }
        // In a job without GPUs, the launcher reports the end of a rank, with the signal that ended it.
        if (lost.empty() || !state_.gpu) return;
        // Rank 0 may end because another rank has reported: the launcher then ends this rank, too.
        wait_for_turn();
        end_all(lost_ranks_text(lost));
    }

    void handle(int sender, const std::string& text) {
        switch (static_cast<Message>(text.at(0))) {
            case Message::RankIsLate:
                any_rank_late_ = true;
                break;
            case Message::AskReport:
                hear_rank_0();
                connections_.send(0, message(Message::RankReport, report().text()));
                break;
            case Message::RankReport:
                reports_[sender] = RankReport::parse(text.substr(1));
                break;
            case Message::NothingLate:
                silence_.reset();
                quiet_.emplace(bounds_.answer);
                break;
            case Message::FailWaits:
                silence_.reset();
                fail_own_waits(RootCause::parse(text.substr(1)));
                break;
            case Message::Leave:
                any_rank_left_ = true;
                break;
            case Message::AskOps:
                hear_rank_0();
                connections_.send(0, message(Message::Ops, state_.flight.streams()));
                write_file(text.substr(1));
                break;
            case Message::Ops:
                ops_[sender] = parse_streams(text.substr(1));
                break;
            case Message::FileWritten:
                files_[sender] = text.substr(1);
                break;
            case Message::End:
                if (sender != 0)
                    connections_.send_to_all(message(Message::End));  // only rank 0 can reach the other ranks
                connections_.flush();
                state_.end_process();
        }
    }

    /// Rank 0 asks or has answered, so its silence is measured anew.
    void hear_rank_0() {
        if (silence_) silence_->timer = PollTimer(bounds_.silence);
    }

    /// Rank 0 collects all reports, and if a wait is late, ends the job (GPUs) or makes the waits of all
    /// ranks fail. If a rank that has answered seems missing, it may be between two waits; if no rank is
    /// missing, the last one may have just come. In both cases rank 0 asks again, for bounds_.answer at most.
    void end_late_waits() {
        any_rank_late_ = false;
        PollTimer grace(bounds_.answer);
        std::optional<RootCause> found;
        for (bool again = true; again;) {
            const std::optional<Reports> reports = collect_reports();
            if (!reports) return;
            found = find_root_cause(*reports);
            again = found && grace.has_time_left() && may_pass(*found, *reports);
            if (again) handle(connections_.receive(bounds_.answer / 8));
            if (!found || again || !found->cause.storage.empty()) continue;
            compare_operations(*reports, found->cause);
            if (state_.is_leaving()) return;
            again = any_rank_left_ && !found->error.empty();  // collect_reports() drops the errors
        }
        // A thread that waits for the file system cannot be ended without its process.
        if (found && (state_.gpu || !found->cause.storage.empty())) end_all(found->message());
        if (found) fail_waits_of_all(*found);
        quiet_.emplace(bounds_.answer);
        connections_.send_to_all(message(Message::NothingLate));
    }

    static bool may_pass(const RootCause& found, const Reports& reports) {
        const std::vector<int>& missing = found.cause.missing;
        if (missing.empty()) return found.error.empty();
        return std::ranges::any_of(missing, [&](int rank) { return reports.by_rank.contains(rank); });
    }

    /// Compares the operations of the ranks that have answered, and lets them write their files. Waits for
    /// twice bounds_.comparison at most, so that no rank takes rank 0 for silent.
    void compare_operations(const Reports& reports, WaitCause& cause) {
        const size_t num_ranks = reports.by_rank.size();
        const std::string hang = time_of_hang();
        ops_ = {{0, parse_streams(state_.flight.streams())}};
        files_.clear();
        connections_.send_to_all(message(Message::AskOps, hang));
        write_file(hang);
        handle_until(bounds_.comparison, [&] { return ops_.size() >= num_ranks; });
        cause.difference = text_of_first_difference(std::exchange(ops_, {}));

        if (state_.flight_file.folder().empty()) return;
        handle_until(bounds_.comparison, [&] {
            if (file_is_new()) files_[0] = state_.flight_file.error();
            return files_.size() >= num_ranks;
        });
        cause.details += text_of_files(state_.flight_file.folder(), reports, files_);
    }

    void write_file(const std::string& hang) {
        if (state_.flight_file.folder().empty()) return;
        if (silence_) silence_->file_is_begun = true;
        file_is_known_ = false;
        state_.flight_file.begin(state_.flight.json(hang, connections_.size()),
                                 [connections = state_.connections] { connections->wake(); });
    }

    /// Whether the file has been written since the last call.
    bool file_is_new() { return state_.flight_file.is_written() && !std::exchange(file_is_known_, true); }

    /// Handles messages until `done()` is true, for at most `seconds`, or until this rank leaves.
    template <class Done>
    void handle_until(double seconds, const Done& done) {
        PollTimer timer(seconds);
        while (!done() && timer.has_time_left() && !state_.is_leaving()) {
            handle(connections_.receive(bounds_.answer / 40));
        }
    }

    /// Asks all ranks for their reports. Returns nothing if this rank leaves meanwhile.
    std::optional<Reports> collect_reports() {
        reports_ = {{0, report()}};
        size_t num_asked = 0;
        for (int rank = 1; rank < connections_.size(); ++rank)
            num_asked += connections_.reaches(rank) ? 1 : 0;
        connections_.send_to_all(message(Message::AskReport));
        handle_until(bounds_.answer, [&] { return reports_.size() >= num_asked + 1; });
        if (state_.is_leaving()) return std::nullopt;
        Reports reports{connections_.size(), std::move(reports_), {}};
        for (int rank = 1; rank < connections_.size(); ++rank) {
            const bool known = connections_.reaches(rank) || disconnected_.contains(rank);
            if (!known || is_behind_a_silent_rank(rank, reports)) reports.unreachable.push_back(rank);
        }
        if (any_rank_left_) {
            // The rank that left may have had an error, which it prints itself. NCCL errors on other ranks
            // are only consequences of that error.
            for (auto& [rank, report] : reports.by_rank) report.error.clear();
        }
        return reports;
    }

    /// Whether a rank through which `rank` reaches rank 0 has not answered.
    bool is_behind_a_silent_rank(int rank, const Reports& reports) const {
        while ((rank = connections_.parent_of(rank)) > 0)
            if (!reports.by_rank.contains(rank)) return true;
        return false;
    }

    /// Makes the waits on the hosts of all ranks fail. The error of rank found.reporter ends the job.
    void fail_waits_of_all(const RootCause& found) {
        connections_.send_to_all(message(Message::FailWaits, found.text()));
        fail_own_waits(found);
    }

    void fail_own_waits(const RootCause& found) {
        const bool is_reporter = found.reporter == connections_.rank();
        const auto blocked = state_.waits.fail({found.cause, !is_reporter});
        if (blocked && is_reporter) end_all(timeout_text(*blocked, found.cause));
    }

    void ask_rank_0() {
        connections_.send(0, message(Message::RankIsLate));
        silence_ = {PollTimer(bounds_.silence)};
    }

    void report_alone(const RankReport& own) {
        wait_for_turn();
        const int rank = connections_.rank();
        std::vector<int> silent(disconnected_.begin(), disconnected_.end());
        for (int other = rank; connections_.reaches(0) && other > 0;)
            silent.insert(silent.begin(), other = connections_.parent_of(other));
        if (silence_->file_is_begun && state_.flight_file.is_written())
            files_[rank] = state_.flight_file.error();
        end_all((own.error.empty() ? no_answer_of_rank_0_text(own, silent) : own.error) +
                text_of_files(state_.flight_file.folder(), {connections_.size(), {{rank, own}}, {}}, files_));
    }

    void wait_for_turn() const {
        const double seconds = std::min(connections_.rank(), kMaxTurns) * kSecondsBetweenTurns;
        std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    }

    [[noreturn]] void end_all(const std::string& error) {
        if (state_.gpu) state_.gpu->set_ending();
        fmt::print(stderr, "{}: error on rank {} of {}: {}\n", program_invocation_short_name,
                   connections_.rank(), connections_.size(), error);
        std::fflush(stderr);
        connections_.send_to_all(message(Message::End));
        connections_.flush();
        if (connections_.rank() != 0) _exit(static_cast<int>(ExitCode::Watchdog));
        state_.end_process();
    }

    const std::shared_ptr<State> shared_state_;
    State& state_;
    WatchTree& connections_;
    const Bounds bounds_;
    const double pause_seconds_;
    double last_report_seconds_ = -1;
    double driver_seconds_ = 0;              // the limit of driver_timer_
    std::optional<PollTimer> driver_timer_;  // starts again with each report of the GPU thread
    bool any_rank_late_ = false, any_rank_left_ = false;
    /// After rank 0 has found nothing late, a rank asks again only after this time, because its wait may last
    /// until the file system answers another rank.
    std::optional<PollTimer> quiet_;
    std::set<int> disconnected_;
    std::map<int, RankReport> reports_;
    std::map<int, std::vector<StreamOps>> ops_;
    std::map<int, std::string> files_;  // why a rank could not write its file; empty: it could
    bool file_is_known_ = false;        // of this rank
    std::optional<Silence> silence_;    // while rank 0 has not answered a RankIsLate of this rank
};

void Watchdog::exchange_messages(std::shared_ptr<State> state) {
    Protocol protocol(state);
    for (bool warned = false;;) {
        try {
            protocol.run();
            break;
        } catch (const std::exception& error) {
            if (!std::exchange(warned, true)) {
                spdlog::warn("the watchdog of rank {} has failed and starts again: {}",
                             state->connections->rank(), error.what());
            }
            if (!state->sleep(seconds_between_polls(state->limit().seconds))) break;
        }
    }
    protocol.send_notice();
    state->set(state->notice_sent);
}

}  // namespace argosy::watch
