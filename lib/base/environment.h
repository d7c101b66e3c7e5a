// Every environment variable that the program reads, one documented field each, read once in one place.
#pragma once

#include <string>

namespace argosy {

struct Environment {
    /// SLURM_NTASKS, where SLURM_STEP_ID says that srun started this process: the ranks it was asked for. Else 0.
    int slurm_num_tasks = 0;
    /// ARGOSY_SYNCHRONOUS_SENDS=1: pipeline sends end only once they are received (tests).
    bool synchronous_sends = false;
    /// ARGOSY_LOG: trace, debug, info, warn, error, off.
    std::string log_level = "info";

    /// The environment of this process.
    static Environment read();
};

}  // namespace argosy
