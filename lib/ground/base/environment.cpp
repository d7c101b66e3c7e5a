#include "base/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/output.h"

namespace argosy {
namespace {

std::string text_of(const char* variable, const std::string& otherwise = "") {
    const char* value = std::getenv(variable);
    return value ? value : otherwise;
}

int integer_of(const char* variable, int otherwise) {
    const std::string value = text_of(variable);
    return value.empty() ? otherwise : std::atoi(value.c_str());
}

std::string gpu_request() {
    for (const char* variable :
         {"SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE", "SLURM_GPUS"}) {
        const std::string value = text_of(variable);
        if (!value.empty() && value != "0") return std::string(variable) + "=" + value;
    }
    return "";
}

// The allow list of communication_variables().
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

using Where = SlowSetting::Where;
using Cost = SlowSetting::Cost;

std::string lower(std::string_view value) {
    std::string result(value);
    std::ranges::transform(result, result.begin(), [](unsigned char letter) { return std::tolower(letter); });
    return result;
}

/// The number at the start of `value`, after blanks; `otherwise` if there is none.
long leading_integer(std::string_view value, long otherwise) {
    value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
    long number = otherwise;
    std::from_chars(value.data(), value.data() + value.size(), number);
    return number;
}

bool is_set(std::string_view value) { return !value.empty(); }
bool is_on(std::string_view value) { return leading_integer(value, 0) != 0; }
bool is_off(std::string_view value) { return is_set(value) && !is_on(value); }
bool is_one(std::string_view value) { return leading_integer(value, 0) == 1; }
/// An index fixes NCCL's choice; -1, or no value, leaves it to NCCL.
bool is_pinned(std::string_view value) { return leading_integer(value, -1) >= 0; }
bool is_socket(std::string_view value) { return lower(value) == "socket"; }
bool prints_much(std::string_view value) { return lower(value) == "info" || lower(value) == "trace"; }
bool disables_p2p(std::string_view value) { return lower(value) == "loc" || value == "0"; }

/// A value without expandable_segments:True turns these segments off, because any value replaces the settings
/// that this program passes to LibTorch's allocator.
bool disables_expandable_segments(std::string_view value) {
    return is_set(value) && lower(value).find("expandable_segments:true") == std::string::npos;
}

constexpr const char* kFixedSegments =
    "without expandable segments memory fragments: the allocator releases it and tries again, and memory "
    "runs out earlier";
constexpr const char* kExpand = "add expandable_segments:True to it, or unset it";
constexpr const char* kThroughTheHost = "GPUs of a node communicate only through host memory";
constexpr const char* kByTcp =
    "the adapters stay unused and all traffic goes over TCP, ten or more times slower";
constexpr const char* kForced =
    "a forced choice applies to every size and collective, and stays after its reason is gone";
constexpr const char* kShowGain = "unset it, unless nccl-bench shows a gain on these nodes";

constexpr SlowSetting kSettings[] = {
    {"CUDA_LAUNCH_BLOCKING", is_on, Where::Everywhere, Cost::Ruins,
     "the host waits for each kernel: nothing overlaps, and training is many times slower"},
    {"CUDA_DEVICE_MAX_CONNECTIONS", is_one, Where::Everywhere, Cost::Slows,
     "all streams share one hardware queue: communication waits behind computation, and a pipeline may hang"},
    {"NVIDIA_TF32_OVERRIDE", is_set, Where::Everywhere, Cost::Slows,
     "it overrides the precision of all float32 products"},
    {"NCCL_DEBUG", prints_much, Where::Everywhere, Cost::Slows,
     "every rank prints a lot, with TRACE or all of NCCL_DEBUG_SUBSYS at every operation",
     "set it to WARN, or unset it"},
    {"NCCL_P2P_DISABLE", is_on, Where::SeveralRanksANode, Cost::Slows, kThroughTheHost},
    {"NCCL_P2P_LEVEL", disables_p2p, Where::SeveralRanksANode, Cost::Slows, kThroughTheHost},
    {"NCCL_SHM_DISABLE", is_on, Where::SeveralRanksANode, Cost::Slows, "ranks of a node cannot share memory"},
    {"NCCL_IB_DISABLE", is_on, Where::FabricBetweenNodes, Cost::Ruins, kByTcp},
    {"NCCL_NET", is_socket, Where::FabricBetweenNodes, Cost::Ruins, kByTcp},
    {"NCCL_GRAPH_REGISTER", is_on, Where::SeveralRanksANode, Cost::Ruins,
     "operations in CUDA graphs crash or hang between GPUs with access to each other's memory"},
    {"NCCL_LAUNCH_ORDER_IMPLICIT", is_off, Where::Everywhere, Cost::Ruins,
     "communicators that run at the same time may start in different orders on the ranks, and hang"},
    {"NCCL_ALGO", is_set, Where::Everywhere, Cost::Slows, kForced, kShowGain},
    {"NCCL_PROTO", is_set, Where::Everywhere, Cost::Slows, kForced, kShowGain},
    {"NCCL_IB_GID_INDEX", is_pinned, Where::Everywhere, Cost::Slows,
     "a pinned index often comes from another cluster, and NCCL finds the right one itself"},
    {"PYTORCH_NO_CUDA_MEMORY_CACHING", is_set, Where::Everywhere, Cost::Slows,
     "each tensor needs a cudaMalloc that waits for the GPU, many times slower"},
    {"PYTORCH_ALLOC_CONF", disables_expandable_segments, Where::Everywhere, Cost::Slows, kFixedSegments,
     kExpand},
    {"PYTORCH_CUDA_ALLOC_CONF", disables_expandable_segments, Where::Everywhere, Cost::Slows, kFixedSegments,
     kExpand},
    {"MALLOC_CHECK_", is_on, Where::Everywhere, Cost::Slows, "each malloc and free is checked"},
    {"MALLOC_PERTURB_", is_on, Where::Everywhere, Cost::Slows, "each malloc and free fills its memory"},
};

std::string arrivals_in_folder_of_mpirun() {
    const std::string num_ranks = text_of("OMPI_COMM_WORLD_SIZE"), folder = text_of("PMIX_SERVER_TMPDIR");
    const bool one_node = !num_ranks.empty() && num_ranks == text_of("OMPI_COMM_WORLD_LOCAL_SIZE");
    return one_node && !folder.empty() ? folder + "/arrivals" : "";
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

std::string Environment::node_name() const { return slurm_node_name.empty() ? host_name() : slurm_node_name; }

Environment Environment::read() {
    Environment env;
    // mpirun inside a Slurm step inherits the step's variables, but may start a different number of ranks.
    const bool under_mpirun = !text_of("OMPI_COMM_WORLD_SIZE").empty();
    const bool under_srun = !text_of("SLURM_STEP_ID").empty() && !under_mpirun;
    env.expected_ranks = integer_of("ARGOSY_RANKS", under_srun ? integer_of("SLURM_NTASKS", 0) : 0);
    env.start = {.rank = integer_of("OMPI_COMM_WORLD_RANK", integer_of("SLURM_PROCID", -1)),
                 .num_ranks = integer_of("OMPI_COMM_WORLD_SIZE", env.expected_ranks),
                 .seconds = integer_of("ARGOSY_START_SECONDS", env.start.seconds),
                 .arrivals = text_of("ARGOSY_ARRIVALS", arrivals_in_folder_of_mpirun())};
    env.local_rank = integer_of("OMPI_COMM_WORLD_LOCAL_RANK", integer_of("SLURM_LOCALID", 0));
    const std::string of_launcher = text_of("PMIX_SERVER_TMPDIR");
    env.mpi_folder = {of_launcher, !of_launcher.empty()};
    for (const char* const variable : {"OMPI_MCA_orte_tmpdir_base", "TMPDIR", "TEMP", "TMP"})
        if (env.mpi_folder.path.empty()) env.mpi_folder.path = text_of(variable);
    if (env.mpi_folder.path.empty()) env.mpi_folder.path = "/tmp";
    env.slurm_job_id = text_of("SLURM_JOB_ID");
    env.slurm_node_name = text_of("SLURMD_NODENAME");
    env.requested_gpus = gpu_request();
    env.device = text_of("ARGOSY_DEVICE");
    env.home = text_of("HOME");
    env.synchronous_sends = text_of("ARGOSY_SYNCHRONOUS_SENDS") == "1";
    env.openmp_dynamic = text_of("OMP_DYNAMIC") == "true" || text_of("OMP_DYNAMIC") == "TRUE";
    env.cpu_kernels = text_of("ARGOSY_CPU_KERNELS");
    env.torch_allocator_is_set =
        !text_of("PYTORCH_ALLOC_CONF").empty() || !text_of("PYTORCH_CUDA_ALLOC_CONF").empty();
    for (const char* const variable : {"LD_PRELOAD", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"})
        env.has_injected_tool = env.has_injected_tool || !text_of(variable).empty();
    env.nccl_host_id = text_of("NCCL_HOSTID");
    env.log_level = text_of("ARGOSY_LOG", env.log_level);
    return env;
}

bool SlowSetting::matters(const Ranks& ranks) const {
    switch (where) {
        case Where::SeveralRanksANode:
            return ranks.several_a_node;
        case Where::FabricBetweenNodes:
            return ranks.fabric_between_nodes;
        case Where::Everywhere:
            break;
    }
    return true;
}

const std::string* SlowSetting::harmful_value(
    const std::vector<std::pair<std::string, std::string>>& variables) const {
    const auto found = std::ranges::find(variables, variable, &std::pair<std::string, std::string>::first);
    return found != variables.end() && holds(found->second) ? &found->second : nullptr;
}

std::span<const SlowSetting> slow_settings() { return kSettings; }

}  // namespace argosy
