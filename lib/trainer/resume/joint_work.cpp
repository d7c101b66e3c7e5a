#include "resume/joint_work.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <exception>
#include <set>
#include <sstream>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/output.h"
#include "base/program.h"
#include "base/raw_file.h"
#include "comm/values.h"

namespace argosy::resume {
namespace {

/// State of one rank's work. The order of the values matters, because the ranks take the maximum.
enum OwnState : int64_t { kEnded, kUnderWay };

/// The error of work that has ended; none if the work succeeded.
std::optional<JointWork::Failure> failure_of(std::future<void>& work, int rank) {
    try {
        work.get();
        return std::nullopt;
    } catch (const std::exception& error) {
        const Error known = as_error(error);
        return JointWork::Failure{rank, known.code(), known.what()};
    }
}

}  // namespace

JointWork::~JointWork() {
    if (!under_way()) return;
    if (own_.wait_for(std::chrono::duration<double>(patience_seconds_)) == std::future_status::ready) {
        thread_.join();
        return;
    }
    spdlog::warn("reading or writing did not end within {} s; the process exits without waiting longer",
                 patience_seconds_);
    thread_.detach();
}

void JointWork::begin(std::function<void()> work) {
    ARGOSY_CHECK(!under_way(), "work within work");
    if (!work) work = [] {};
    // std::async does not fit, because the destructor of its future waits for the thread without a limit.
    std::packaged_task<void()> task(std::move(work));
    own_ = task.get_future();
    thread_ = std::thread(std::move(task));
}

bool JointWork::ended() {
    ARGOSY_CHECK(under_way());
    const bool own_ended = own_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    if (comm::maximum(control_, own_ended ? kEnded : kUnderWay) != kEnded) return false;
    thread_.join();
    learn_failure(failure_of(own_, control_.rank()));
    return true;
}

/// COLLECTIVE: sets failure_ on all ranks to the failure of the lowest rank that failed. `own` is this
/// rank's.
void JointWork::learn_failure(const std::optional<Failure>& own) {
    failure_.reset();
    // The maximum of the negated ranks is the lowest rank that failed. A rank without a failure contributes
    // -size().
    const int64_t place = own ? control_.rank() : control_.size();
    const auto rank = static_cast<int>(-comm::maximum(control_, -place));
    if (rank == control_.size()) return;
    failure_ = Failure{rank, comm::broadcast(control_, own ? own->code : ExitCode::Failed, rank),
                       comm::broadcast_text(control_, own ? own->reason : "", rank)};
}

void JointWork::pause() {
    constexpr std::chrono::milliseconds kBetweenPolls{2};
    constexpr double kMaxGapSeconds = 1;  // in a longer gap, this thread did something else or stood still
    std::this_thread::sleep_for(kBetweenPolls);
    const double now = seconds_now();
    const int64_t bytes = RawFile::num_bytes_moved();
    const bool waits = under_way() && own_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
    if (!waits || bytes != bytes_moved_ || now - paused_at_ > kMaxGapSeconds) progress_at_ = now;
    bytes_moved_ = bytes;
    paused_at_ = now;
    if (now - progress_at_ > stall_seconds_) end_stalled();
}

void JointWork::end_stalled() const {
    fmt::print(
        stderr,
        "{}: error on rank {} of {}: reading or writing in the run's folder has moved no byte for {} s "
        "(comm.storage_timeout_seconds); the file system hangs on {}\n",
        program_invocation_short_name, control_.rank(), control_.size(), stall_seconds_, host_name());
    std::fflush(stderr);
    _exit(static_cast<int>(ExitCode::Watchdog));
}

void JointWork::wait() {
    while (!ended()) pause();
}

void JointWork::run(std::function<void()> work) {
    begin(std::move(work));
    try {
        wait();
    } catch (...) {
        if (under_way()) own_.wait();
        throw;
    }
    if (!failure_) return;
    const std::string place = control_.size() == 1 ? "" : fmt::format("rank {}: ", failure_->rank);
    if (failure_->code == ExitCode::BadInput) throw UserError("{}{}", place, failure_->reason);
    if (failure_->code != ExitCode::Failed)
        throw Error(failure_->code, Reach::AllRanks, place + failure_->reason);
    throw JobError("{}{}", place, failure_->reason);
}

Faults JointWork::find_faults(const std::function<std::vector<std::string>()>& search) {
    std::vector<std::string> own;
    Faults found;
    bool damaged = false;
    try {
        run([&] {
            try {
                own = search();
                damaged = !own.empty();
            } catch (const std::exception& exception) {
                const Error error = as_error(exception);
                own = {error.what()};
                damaged = error.code() == ExitCode::CheckFailed;
                if (!damaged && error.code() != ExitCode::BadInput) throw;
            }
        });
    } catch (const JobError&) {
        found.unreadable = true;
    }
    found.damaged = comm::maximum(control_, damaged ? 1 : 0) != 0;
    std::set<std::string> texts;
    for (const std::string& text :
         comm::all_gather_texts(control_, fmt::format("{}", fmt::join(own, "\n")))) {
        std::istringstream lines(text);
        for (std::string line; std::getline(lines, line);) texts.insert(line);
    }
    found.texts.assign(texts.begin(), texts.end());
    return found;
}

void Faults::refuse() const {
    if (unreadable) throw JobError("{}", texts.front());
    if (damaged) throw DamageError("{}", texts.front());
    throw UserError("{}", texts.front());
}

}  // namespace argosy::resume
