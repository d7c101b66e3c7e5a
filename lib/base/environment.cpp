#include "base/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace argosy {
namespace {

std::string text(const char* name, const std::string& otherwise = "") {
    const char* value = std::getenv(name);
    return value ? value : otherwise;
}

int number(const char* name, int otherwise) {
    const std::string value = text(name);
    return value.empty() ? otherwise : std::atoi(value.c_str());
}

constexpr std::string_view kShownPrefixes[] = {
    "NCCL_",        "UCX_",    "FI_",   "SHARP_", "OMPI_MCA_btl", "OMPI_MCA_coll", "OMPI_MCA_mtl",
    "OMPI_MCA_pml", "CUBLAS_", "GOMP_", "KMP_",   "MALLOC_",      "MKL_",          "OMP_",
};
constexpr std::string_view kShownNames[] = {
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_VISIBLE_DEVICES",
    "GLIBC_TUNABLES",
    "GPU_DEVICE_ORDINAL",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "NVIDIA_TF32_OVERRIDE",
    "OMPI_MCA_mpi_yield_when_idle",
    "OMPI_MCA_oob_tcp_if_include",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "SLURM_CPUS_PER_TASK",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_TASK",
    "SLURM_JOB_ID",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_PARTITION",
    "SLURM_MPI_TYPE",
    "SLURM_NTASKS",
    "SLURM_RESTART_COUNT",
    "SLURM_STEP_ID",
};

bool may_be_shown(std::string_view name) {
    return std::ranges::any_of(kShownPrefixes, [&](auto prefix) { return name.starts_with(prefix); }) ||
           std::ranges::find(kShownNames, name) != std::end(kShownNames);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> communication_variables() {
    std::vector<std::pair<std::string, std::string>> found;
    for (char** entry = environ; *entry; ++entry) {
        const std::string_view line = *entry;
        const size_t end = line.find('=');
        if (end == line.npos || !may_be_shown(line.substr(0, end))) continue;
        found.emplace_back(line.substr(0, end), line.substr(end + 1));
    }
    std::ranges::sort(found);
    return found;
}

Environment Environment::read() {
    Environment env;
    // mpirun inside a Slurm step inherits the step's variables, but may start another number of ranks.
    const bool under_mpirun = !text("OMPI_COMM_WORLD_SIZE").empty();
    const bool under_srun = !text("SLURM_STEP_ID").empty() && !under_mpirun;
    env.expected_ranks = number("ARGOSY_RANKS", under_srun ? number("SLURM_NTASKS", 0) : 0);
    env.start = {.rank = number("OMPI_COMM_WORLD_RANK", number("SLURM_PROCID", -1)),
                 .num_ranks = number("OMPI_COMM_WORLD_SIZE", env.expected_ranks),
                 .seconds = number("ARGOSY_START_SECONDS", env.start.seconds),
                 .arrivals = text("ARGOSY_ARRIVALS")};
    env.slurm_job_id = text("SLURM_JOB_ID");
    env.slurm_node_name = text("SLURMD_NODENAME");
    env.home = text("HOME");
    env.synchronous_sends = text("ARGOSY_SYNCHRONOUS_SENDS") == "1";
    env.openmp_dynamic = text("OMP_DYNAMIC") == "true" || text("OMP_DYNAMIC") == "TRUE";
    env.cpu_kernels = text("ARGOSY_CPU_KERNELS");
    env.torch_allocator_is_set =
        !text("PYTORCH_ALLOC_CONF").empty() || !text("PYTORCH_CUDA_ALLOC_CONF").empty();
    env.nccl_host_id = text("NCCL_HOSTID");
    env.log_level = text("ARGOSY_LOG", env.log_level);
    env.terminal = text("TERM");
    if (const int columns = number("COLUMNS", 0); columns > 0) env.columns = columns;
    return env;
}

}  // namespace argosy
