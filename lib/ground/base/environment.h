// The environment variables that the program reads: its settings (Environment), the variables that reports
// show, and the variables whose values slow a run down (SlowSetting).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace argosy {

/// The settings, read once. The comment of a field names its variable.
struct Environment {
    /// Number of ranks that the user requested: ARGOSY_RANKS (set by jobs/, valid under every launcher); else
    /// SLURM_NTASKS if srun started this process (SLURM_STEP_ID is set, OMPI_COMM_WORLD_SIZE is not); else 0.
    int expected_ranks = 0;
    /// The values that this rank knows before MPI starts.
    struct Start {
        int rank = -1;      // OMPI_COMM_WORLD_RANK (mpirun), else SLURM_PROCID (srun); -1: not known
        int num_ranks = 0;  // OMPI_COMM_WORLD_SIZE, else expected_ranks
        /// ARGOSY_START_SECONDS: time limit for starting MPI, for the first exchanges of all ranks and for
        /// leaving MPI; 0: no limit.
        int seconds = 300;
        /// ARGOSY_ARRIVALS: a folder that all ranks see and that the launcher has emptied. While the job
        /// starts or ends, each node has a file there with a line for each of its ranks, so that waiting
        /// ranks can name the missing ranks. If mpirun starts all ranks on one node
        /// (OMPI_COMM_WORLD_LOCAL_SIZE is OMPI_COMM_WORLD_SIZE), the default is a folder in mpirun's own
        /// (PMIX_SERVER_TMPDIR), which mpirun removes at its end. Empty: no such folder.
        std::string arrivals;
    };
    Start start;
    /// The number of this rank among those of its node: OMPI_COMM_WORLD_LOCAL_RANK, else SLURM_LOCALID; else
    /// 0.
    int local_rank = 0;
    /// The folder in which Open MPI keeps files of this process on its node.
    struct MpiFolder {
        std::string path;  // the first of PMIX_SERVER_TMPDIR, OMPI_MCA_orte_tmpdir_base, TMPDIR, ...
        bool is_of_launcher = false;  // PMIX_SERVER_TMPDIR is set: a launcher has made its files there
    };
    MpiFolder mpi_folder;
    /// SLURM_JOB_ID: Slurm's number of the job, which a requeued job keeps; empty outside of jobs.
    std::string slurm_job_id;
    /// SLURMD_NODENAME: Slurm's name of this node; empty outside of jobs. The host name may differ, because
    /// several Slurm nodes may run on one host.
    std::string slurm_node_name;
    /// The request of this job for GPUs, as Slurm's variable "SLURM_JOB_GPUS=0,1": the first one that is set
    /// and not 0 of SLURM_JOB_GPUS, SLURM_STEP_GPUS, SLURM_GPUS_ON_NODE, SLURM_GPUS_PER_NODE and SLURM_GPUS.
    std::string requested_gpus;
    /// ARGOSY_DEVICE: "cpu" trains on CPUs although the job or the machine has GPUs. Empty: on GPUs if there
    /// are any.
    std::string device;
    /// HOME: the folder of the user's own settings.
    std::string home;
    /// ARGOSY_SYNCHRONOUS_SENDS=1: a pipeline send completes only after its receive has started (tests).
    bool synchronous_sends = false;
    /// OMP_DYNAMIC=true: OpenMP may use fewer threads on a busy machine, which changes the rounding of sums.
    bool openmp_dynamic = false;
    /// ARGOSY_CPU_KERNELS: the kernels' instruction set (kernels/table.h); empty: the best one that the
    /// processor supports.
    std::string cpu_kernels;
    /// Whether PYTORCH_ALLOC_CONF or PYTORCH_CUDA_ALLOC_CONF configures LibTorch's GPU allocator.
    bool torch_allocator_is_set = false;
    /// Whether a tool such as a profiler is loaded into the process (LD_PRELOAD, CUDA_INJECTION64_PATH,
    /// NVTX_INJECTION64_PATH): it writes its results when main returns.
    bool has_injected_tool = false;
    /// NCCL_HOSTID: the name of the node on which NCCL assumes this rank to run. Ranks with different values
    /// may share a GPU (tests).
    std::string nccl_host_id;
    /// ARGOSY_LOG: trace, debug, info, warn, error, off.
    std::string log_level = "info";

    /// The environment of this process.
    static Environment read();

    /// Slurm's name of this node, by which a job can exclude the node. Outside of Slurm: the host name.
    std::string node_name() const;
};

/// The environment variables that affect communication and speed, as pairs (name, value) sorted by name:
/// variables of NCCL, UCX, libfabric, SHARP and Open MPI's transports, variables that choose devices,
/// threads, allocators and libraries, and Slurm's description of the job. An allow list names the variables:
/// others may hold secrets such as tokens, and their values are never read.
std::vector<std::pair<std::string, std::string>> communication_variables();

// Environment variables that make a run slow or break it. A run warns of these variables when it starts, and
// a pre-flight reports them. Each variable is one row of a table.

struct SlowSetting {
    enum class Where { Everywhere, SeveralRanksANode, FabricBetweenNodes };
    enum class Cost { Slows, Ruins };

    const char* variable;
    bool (*holds)(std::string_view value);  // whether this value does harm
    Where where;                            // the runs that the variable affects
    Cost cost;
    const char* why;
    const char* remedy = "unset it";

    /// How a job's ranks are spread over nodes.
    struct Ranks {
        bool several_a_node, fabric_between_nodes;  // fabric: network adapters that are up
    };
    bool matters(const Ranks& ranks) const;

    /// The variable's value in `variables` (communication_variables()) if that value does harm, else null.
    const std::string* harmful_value(const std::vector<std::pair<std::string, std::string>>& variables) const;
};

std::span<const SlowSetting> slow_settings();

}  // namespace argosy
