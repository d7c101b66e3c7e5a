// Runs work on every rank in a background thread while training goes on, such as writing a checkpoint, and
// reports a failure to all ranks. No collective blocks on the work: the ranks poll with a tiny all-reduce
// whether all have ended, so a slow disk on one rank lets no collective time out. Owns the thread.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"

namespace argosy::resume {

class JointWork {
  public:
    struct Failure {
        int rank = 0;  // the first whose work failed
        ExitCode code = ExitCode::Failed;
        std::string reason;
    };

    /// How long the destructor waits for this rank's work: long enough to commit a step that is written, and
    /// shorter than the time that Slurm gives a job to exit (KillWait, 30 s), since the other ranks wait for
    /// this rank's error.
    static constexpr double kPatienceSeconds = 10;

    /// REQUIRES: `control` outlives it.
    explicit JointWork(comm::Communicator& control, double patience_seconds = kPatienceSeconds)
        : control_(control), patience_seconds_(patience_seconds) {}
    JointWork(const JointWork&) = delete;
    /// If work is under way, as when an error unwinds, waits for this rank's work, at most patience_seconds:
    /// a hanging disk must not hide the error. Work that takes longer is detached and ends with the process.
    ~JointWork();

    /// Starts this rank's work in a thread and returns at once; nullptr stands for no work. failure() returns
    /// its errors. Every rank must call begin(), or none. REQUIRES: no work under way; `work` owns what it
    /// uses, since the destructor may detach it.
    void begin(std::function<void()> work);
    bool under_way() const { return own_.valid(); }

    /// COLLECTIVE, one tiny all-reduce: whether the work of all ranks has ended. After true no work is under
    /// way. REQUIRES: work under way.
    bool ended();

    /// COLLECTIVE: returns once the work of all ranks has ended.
    void wait();

    /// The failure of the work that ended last, if it failed; the same on all ranks.
    const std::optional<Failure>& failure() const { return failure_; }

    /// COLLECTIVE: begin() and wait(). If some ranks fail, all ranks throw the same UserError or JobError,
    /// which names the first rank that failed. `work` may use the caller's variables: if waiting for the
    /// other ranks fails, run() still waits for this rank's work, without a limit.
    void run(std::function<void()> work);

  private:
    void learn_failure(const std::optional<Failure>& own);

    comm::Communicator& control_;
    double patience_seconds_;
    std::future<void> own_;
    std::thread thread_;
    std::optional<Failure> failure_;
};

/// COLLECTIVE: the text of each rank, by rank. REQUIRES: no NUL in `own`.
std::vector<std::string> all_gather_texts(comm::Communicator& group, const std::string& own);

/// COLLECTIVE: returns `own` of rank `root` on every rank. The other ranks' `own` is ignored.
std::string broadcast_text(comm::Communicator& group, const std::string& own, int root);

/// COLLECTIVE: returns rank 0's `own` on every rank. The other ranks' `own` is ignored.
std::vector<int64_t> broadcast_from_rank_0(comm::Communicator& group, const std::vector<int64_t>& own);

}  // namespace argosy::resume
