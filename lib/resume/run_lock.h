// Ensures that only one job at a time writes a run's folder. Rank 0 keeps the file `run.lock` in that folder
// locked (flock) while the run lasts; the file's content names the holder. The lock ends with the process,
// however the process ends. NFS and Lustre exclude other nodes only if mounted with locks for the whole
// cluster: a mount with locks within a node (Lustre's localflock) cannot be detected, and a file system
// without locks causes a warning. The lock does not cover a checkpoint.folder outside job.dump_folder.
#pragma once

#include <optional>

#include "base/environment.h"
#include "base/output.h"
#include "comm/communicator.h"
#include "config/job_config.h"

namespace argosy::resume {

class RunLock {
  public:
    /// Seconds within which a rank ends after it timed out waiting for its peers.
    static constexpr double kSecondsToEnd = 30;

    /// COLLECTIVE over `control`. Makes job.dump_folder if it does not exist. UserError if another run holds
    /// the lock. If processes of an earlier start of this same job hold it (ranks of a node that Slurm gave
    /// up), waits until they must have timed out and ended: train_timeout_seconds + kSecondsToEnd. If they
    /// hold it even then, that is a failure of the machine (JobError), not the user's mistake.
    RunLock(const config::JobConfig& config, const Environment& environment, comm::Communicator& control);
    RunLock(const RunLock&) = delete;

    /// Removes the file, and the folder if the constructor made it and it is empty, so a run that was refused
    /// leaves nothing behind, and a folder that others made stays.
    ~RunLock();

  private:
    std::optional<FileLock> file_;  // on rank 0
    bool made_folder_ = false;      // on rank 0
};

}  // namespace argosy::resume
