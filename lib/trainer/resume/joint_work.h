// Runs work such as writing a checkpoint on every rank, in a background thread, while training goes on, and
// reports a failure to all ranks. No collective waits for the work: the ranks poll with a tiny all-reduce
// whether the work of all ranks has ended, so a slow disk on one rank makes no collective time out.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"

namespace argosy::resume {

/// The faults that all ranks together found in files.
struct Faults {
    std::vector<std::string> texts;  // each once, the same on all ranks
    bool unreadable = false;         // some rank could not read a file, which may still be intact
    bool damaged = false;            // bytes are not those that were saved

    /// Throws the first fault. REQUIRES: there is one.
    [[noreturn]] void refuse() const;
};

class JointWork {
  public:
    struct Failure {
        int rank = 0;  // the lowest rank whose work failed
        ExitCode code = ExitCode::Failed;
        std::string reason;
    };

    /// How long the destructor waits for this rank's work. This is long enough to commit a step that is
    /// written, and shorter than the time that Slurm gives a job to exit (KillWait, 30 s), because the other
    /// ranks wait for this rank's error.
    static constexpr double kPatienceSeconds = 10;
    static constexpr double kNoLimit = std::numeric_limits<double>::infinity();

    /// REQUIRES: `control` outlives this object. pause() says what `stall_seconds` limits.
    explicit JointWork(comm::Communicator& control, double stall_seconds = kNoLimit,
                       double patience_seconds = kPatienceSeconds)
        : control_(control), stall_seconds_(stall_seconds), patience_seconds_(patience_seconds) {}
    JointWork(const JointWork&) = delete;
    /// If work is under way, such as when an error unwinds, waits for this rank's work for at most
    /// `patience_seconds`, because a hanging disk must not hide the error. Work that takes longer is detached
    /// and ends with the process.
    ~JointWork();

    /// Starts this rank's work in a thread and returns at once; nullptr stands for no work. If `work` throws,
    /// failure() returns the error after ended(). Every rank must call begin(), or none. REQUIRES: no work is
    /// under way, and `work` owns what it uses, because the destructor may detach the thread.
    void begin(std::function<void()> work);
    bool under_way() const { return own_.valid(); }

    /// COLLECTIVE, one tiny all-reduce: whether the work of all ranks has ended. Once ended() returns true,
    /// no work is under way. REQUIRES: work is under way.
    bool ended();

    /// Sleeps for a moment between two calls of ended(), in a thread that waits for the work. If this rank's
    /// work has neither ended nor read, written or synced a byte for `stall_seconds`, ends the process with
    /// the watchdog's exit code and a message: nothing can stop a thread that hangs in a call of the file
    /// system.
    void pause();

    /// COLLECTIVE: returns once the work of all ranks has ended.
    void wait();

    /// The failure of the work that ended last; none if it succeeded. The same on all ranks.
    const std::optional<Failure>& failure() const { return failure_; }

    /// COLLECTIVE: begin() and wait(). If the work of some ranks fails, all ranks throw the same UserError or
    /// JobError, which names the lowest such rank. `work` may use the caller's variables, because run() waits
    /// for this rank's work, without a limit, even if waiting for the other ranks fails.
    void run(std::function<void()> work);

    /// COLLECTIVE: run() of `search`, which returns damage. An error with the exit code of damage is damage,
    /// one of a mistake another fault, and a failure of the machine a fault that sets `unreadable`.
    Faults find_faults(const std::function<std::vector<std::string>()>& search);

  private:
    void learn_failure(const std::optional<Failure>& own);
    [[noreturn]] void end_stalled() const;

    comm::Communicator& control_;
    double stall_seconds_;
    double patience_seconds_;
    std::future<void> own_;
    std::thread thread_;
    std::optional<Failure> failure_;
    int64_t bytes_moved_ = 0;                 // RawFile::num_bytes_moved() at the last progress
    double progress_at_ = 0, paused_at_ = 0;  // seconds_now() at the last progress and the last pause()
};

}  // namespace argosy::resume
