// Which environment variables are shown, and which are not read.
#include "base/environment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace argosy {
namespace {

bool shown(const char* name) {
    ::setenv(name, "some value", 1);
    const auto variables = communication_variables();
    ::unsetenv(name);
    return std::ranges::find(variables, std::pair<std::string, std::string>(name, "some value")) !=
           variables.end();
}

TEST(Environment, ShowsVariablesThatAffectCommunicationAndSpeed) {
    for (const char* name : {"NCCL_ALGO",
                             "UCX_TLS",
                             "FI_PROVIDER",
                             "SHARP_COLL_LOG_LEVEL",
                             "OMPI_MCA_btl",
                             "OMPI_MCA_oob_tcp_if_include",
                             "CUDA_LAUNCH_BLOCKING",
                             "CUDA_DEVICE_MAX_CONNECTIONS",
                             "NVIDIA_TF32_OVERRIDE",
                             "PYTORCH_CUDA_ALLOC_CONF",
                             "PYTORCH_ALLOC_CONF",
                             "PYTORCH_NO_CUDA_MEMORY_CACHING",
                             "MALLOC_ARENA_MAX",
                             "OMP_NUM_THREADS",
                             "OMP_PROC_BIND",
                             "KMP_AFFINITY",
                             "GOMP_CPU_AFFINITY",
                             "MKL_NUM_THREADS",
                             "CUBLAS_WORKSPACE_CONFIG",
                             "LD_PRELOAD",
                             "LD_LIBRARY_PATH",
                             "GLIBC_TUNABLES",
                             "SLURM_NTASKS"}) {
        EXPECT_TRUE(shown(name)) << name;
    }
}

TEST(Environment, ShowsNothingElse) {
    for (const char* name :
         {"HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "SLURM_JWT", "WANDB_API_KEY", "OMPI_MCA_orte_secret",
          "PMIX_SECURITY", "NCCL", "XNCCL_ALGO", "CUDA_SECRET", "PYTORCH_TOKEN"}) {
        EXPECT_FALSE(shown(name)) << name;
    }
}

TEST(Environment, RanksOnOneNodeMeetInTheFolderOfTheirLauncher) {
    const auto arrivals = [] { return Environment::read().start.arrivals; };
    ::unsetenv("ARGOSY_ARRIVALS");
    ::setenv("PMIX_SERVER_TMPDIR", "/tmp/ompi", 1);
    ::setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    ::setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "4", 1);
    EXPECT_EQ(arrivals(), "/tmp/ompi/arrivals");
    ::setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
    EXPECT_EQ(arrivals(), "") << "ranks on another node do not see the folder";
    ::setenv("ARGOSY_ARRIVALS", "run/arrivals", 1);
    EXPECT_EQ(arrivals(), "run/arrivals");
    for (const char* name :
         {"ARGOSY_ARRIVALS", "PMIX_SERVER_TMPDIR", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"}) {
        ::unsetenv(name);
    }
}

TEST(Environment, IsSortedByName) {
    ::setenv("UCX_TLS", "a", 1);
    ::setenv("NCCL_ALGO", "b", 1);
    EXPECT_TRUE(std::ranges::is_sorted(communication_variables()));
    ::unsetenv("UCX_TLS");
    ::unsetenv("NCCL_ALGO");
}

TEST(Environment, NamesANodeAsSlurmDoes) {
    ::unsetenv("SLURMD_NODENAME");
    EXPECT_EQ(Environment::read().slurm_node_name, "");
    ::setenv("SLURMD_NODENAME", "n3", 1);
    EXPECT_EQ(Environment::read().slurm_node_name, "n3");
    ::unsetenv("SLURMD_NODENAME");
}

TEST(Environment, NamesTheRequestForGpus) {
    EXPECT_EQ(Environment::read().requested_gpus, "");
    ::setenv("SLURM_GPUS_ON_NODE", "0", 1);
    EXPECT_EQ(Environment::read().requested_gpus, "");
    ::setenv("SLURM_GPUS_ON_NODE", "8", 1);
    EXPECT_EQ(Environment::read().requested_gpus, "SLURM_GPUS_ON_NODE=8");
    ::unsetenv("SLURM_GPUS_ON_NODE");
}

}  // namespace
}  // namespace argosy
