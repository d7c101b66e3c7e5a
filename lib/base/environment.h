// Every environment variable that the program reads, one documented field each, read once in one place.
#pragma once

#include <string>

namespace argosy {

struct Environment {
    int slurm_num_tasks =
        0;               // SLURM_NTASKS (with SLURM_STEP_ID): ranks that srun was asked for; 0 outside a step
    int local_rank = 0;  // OMPI_COMM_WORLD_LOCAL_RANK or SLURM_LOCALID: this rank's number on its node
    bool synchronous_sends =
        false;  // ARGOSY_SYNCHRONOUS_SENDS=1: pipeline sends wait for their receiver (tests)
    std::string log_level = "info";  // ARGOSY_LOG: trace, debug, info, warn, error

    /// The environment of this process.
    static Environment read();
};

}  // namespace argosy
