// That one job at a time writes a run's folder: `run.lock` in it, which rank 0 holds locked (flock) as long
// as the run lasts, and which says who holds it. The lock goes with the process, however that ends. It holds
// over NFS and Lustre between nodes where these are mounted with locks for the whole cluster; a file system
// that keeps them within a node (Lustre's localflock) cannot be told from one that does not, and one that has
// none is warned of. Steps that checkpoint.folder puts outside of job.dump_folder are not under it.
#pragma once

#include <optional>

#include "base/environment.h"
#include "base/file_lock.h"
#include "comm/communicator.h"
#include "config/job_config.h"

namespace argosy::train {

class RunLock {
  public:
    /// In which a rank that has given up its peers ends.
    static constexpr double kSecondsToEnd = 30;

    /// COLLECTIVE over `control`. Makes job.dump_folder where there is none. UserError where another run
    /// holds it; what is left of this very job, as ranks of a node that Slurm gave up, is waited for as long
    /// as such ranks wait for their peers and end, and where it holds on even then, that is a failure of the
    /// machine and no mistake.
    RunLock(const config::JobConfig& config, const Environment& environment, comm::Communicator& control);
    RunLock(const RunLock&) = delete;

    /// Takes the file away, and the folder that it made itself where nothing else is in it: a run that was
    /// refused leaves nothing, and what others made stays.
    ~RunLock();

  private:
    std::optional<FileLock> file_;  // on rank 0
    bool made_folder_ = false;      // on rank 0
};

}  // namespace argosy::train
