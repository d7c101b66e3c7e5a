// Ensures that only one job at a time writes to a run's folder (job.dump_folder) and saves to a folder of
// steps. Rank 0 keeps the file `run.lock` in both locked (flock) while the run lasts; the file's content
// names the holder. The lock ends with the process, however the process ends. NFS and Lustre exclude other
// nodes only if they are mounted with locks for the whole cluster. A mount with locks within a node (Lustre's
// localflock) cannot be detected; a file system without locks causes a warning.
#pragma once

#include <memory>

#include "base/environment.h"
#include "comm/communicator.h"
#include "config/job_config.h"

namespace argosy::resume {

class RunLock {
  public:
    /// Seconds within which a rank ends after its wait for its peers has timed out.
    static constexpr double kSecondsToEnd = 30;

    /// COLLECTIVE over `control`. Makes the folders if they do not exist. Throws UserError if another run
    /// holds the lock. If a process of an earlier start of this same job holds the lock (a rank on a node
    /// that Slurm gave up), waits until that process must have timed out and ended: train_timeout_seconds +
    /// kSecondsToEnd. Throws JobError if the process holds the lock even then.
    RunLock(const config::JobConfig& config, const Environment& environment, comm::Communicator& control);
    RunLock(const RunLock&) = delete;

    /// Rank 0 takes the lock of job.dump_folder again if the file or its folder has been removed during the
    /// run, and logs an error. (The folder of steps may be on a disk that only saves may wait for.) Throws an
    /// error with the exit code of a UserError if another run holds the new file.
    void check();

    /// Removes the files. Also removes a folder if the constructor made it and it is empty, so that a run
    /// that fails before it writes anything leaves no folder behind.
    ~RunLock();

  private:
    class Folder;
    std::unique_ptr<Folder> dump_, steps_;  // on rank 0; `steps_` only if the run saves
};

}  // namespace argosy::resume
