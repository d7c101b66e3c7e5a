// Work that each rank does in a thread of its own while training goes on, and what all ranks then know of it.
// No collective waits for the work: ranks ask each other whether it has ended, so that a rank with a slow
// disk makes nobody's wait run out.
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

namespace argosy::train {

class JointWork {
  public:
    struct Failure {
        int rank = 0;  // the first whose work failed
        ExitCode code = ExitCode::Failed;
        std::string reason;
    };

    /// How long the end of a rank waits for its work: enough for a step that is written to become whole, and
    /// less than Slurm gives a job to leave (KillWait, 30 s), since the other ranks wait for this one's
    /// error.
    static constexpr double kPatienceSeconds = 10;

    /// REQUIRES: `control` outlives it.
    explicit JointWork(comm::Communicator& control, double patience_seconds = kPatienceSeconds)
        : control_(control), patience_seconds_(patience_seconds) {}
    JointWork(const JointWork&) = delete;
    /// With work under way, as when an error unwinds, waits for this rank's, but no longer than the patience:
    /// a disk that hangs must not hide the error. Such work is left to the end of the process, which is near.
    ~JointWork();

    /// Begins this rank's part; none (nullptr) has ended already. Its errors are what failure() tells. Every
    /// rank begins, or none does. REQUIRES: nothing under way; what `work` uses lives as long as itself,
    /// since it may be left behind.
    void begin(std::function<void()> work);
    bool under_way() const { return own_.valid(); }

    /// COLLECTIVE, a tiny all-reduce: whether all ranks' parts have ended; nothing is under way then.
    /// REQUIRES: work under way.
    bool ended();

    /// COLLECTIVE: returns once all parts have ended.
    void wait();

    /// Of the work that ended last; the same on all ranks.
    const std::optional<Failure>& failure() const { return failure_; }

    /// COLLECTIVE: begin and wait. An error of some ranks is one error of all: UserError or JobError, naming
    /// the rank. `work` may use what is the caller's: where waiting for the others fails, this rank's part is
    /// waited for without a limit.
    void run(std::function<void()> work);

  private:
    void learn_failure(const std::optional<Failure>& own);

    comm::Communicator& control_;
    double patience_seconds_;
    std::future<void> own_;
    std::thread thread_;
    std::optional<Failure> failure_;
};

/// COLLECTIVE: what each rank has to say, by rank; without NUL.
std::vector<std::string> texts_of_all(comm::Communicator& group, const std::string& own);

/// COLLECTIVE: what rank 0 has; the other ranks' own is ignored.
std::vector<int64_t> as_rank_0_knows(comm::Communicator& group, const std::vector<int64_t>& own);

}  // namespace argosy::train
