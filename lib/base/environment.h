// Every environment variable that the program reads, one documented field each, read once in one place.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace argosy {

struct Environment {
    /// The ranks that were asked for: ARGOSY_RANKS, which jobs/ sets, whatever starts them; else
    /// SLURM_NTASKS, where SLURM_STEP_ID says that srun started this process; else 0.
    int expected_ranks = 0;
    /// How the launcher started this rank, before MPI knows.
    struct Start {
        int rank = -1;      // OMPI_COMM_WORLD_RANK (mpirun), else SLURM_PROCID (srun); -1: not known
        int num_ranks = 0;  // OMPI_COMM_WORLD_SIZE, else expected_ranks
        /// ARGOSY_START_SECONDS: that MPI may take to start, or to make a group of ranks; 0: no limit.
        int seconds = 300;
        /// ARGOSY_ARRIVALS: a folder that all ranks see and the launcher emptied, in which each leaves its
        /// number before it starts MPI, so that those who wait can name the others; empty: none.
        std::string arrivals;
    };
    Start start;
    /// SLURM_JOB_ID: the same when Slurm starts a job again; empty outside of jobs.
    std::string slurm_job_id;
    /// SLURMD_NODENAME: what Slurm calls this node; empty outside of jobs. (Not always what the host calls
    /// itself: several nodes may be on one.)
    std::string slurm_node_name;
    /// HOME: where settings of this user lie.
    std::string home;
    /// ARGOSY_SYNCHRONOUS_SENDS=1: pipeline sends end only once they are received (tests).
    bool synchronous_sends = false;
    /// OMP_DYNAMIC=true: OpenMP may take fewer threads on a busy machine, so that sums round differently.
    bool openmp_dynamic = false;
    /// ARGOSY_CPU_KERNELS: the kernels' instruction set (kernels/table.h); empty: the best that the processor
    /// has.
    std::string cpu_kernels;
    /// Whether PYTORCH_ALLOC_CONF or PYTORCH_CUDA_ALLOC_CONF says how LibTorch takes a GPU's memory.
    bool torch_allocator_is_set = false;
    /// NCCL_HOSTID: the node that NCCL takes this rank's for; ranks with different ones may share a GPU
    /// (tests).
    std::string nccl_host_id;
    /// ARGOSY_LOG: trace, debug, info, warn, error, off.
    std::string log_level = "info";
    /// TERM: the kind of terminal, where there is one; "dumb" cannot rewrite a line.
    std::string terminal;
    /// COLUMNS: the width of a terminal that cannot be asked.
    int columns = 80;

    /// The environment of this process.
    static Environment read();
};

/// What steers communication and speed in the environment of this process, name and value, sorted by name:
/// the variables of NCCL, UCX, libfabric, SHARP and Open MPI's transports, those by which devices, threads,
/// allocators and libraries are chosen, and Slurm's numbers of a job. A list of what may be shown: anything
/// else, such as a token, stays unread.
std::vector<std::pair<std::string, std::string>> communication_variables();

}  // namespace argosy
