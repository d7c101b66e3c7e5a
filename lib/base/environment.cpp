#include "base/environment.h"

#include <cstdlib>

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

}  // namespace

Environment Environment::read() {
    Environment env;
    // mpirun inside a Slurm step inherits the step's variables, and starts as many ranks as it likes.
    const bool under_mpirun = !text("OMPI_COMM_WORLD_SIZE").empty();
    const bool under_srun = !text("SLURM_STEP_ID").empty() && !under_mpirun;
    env.expected_ranks = number("ARGOSY_RANKS", under_srun ? number("SLURM_NTASKS", 0) : 0);
    env.slurm_job_id = text("SLURM_JOB_ID");
    env.synchronous_sends = text("ARGOSY_SYNCHRONOUS_SENDS") == "1";
    env.openmp_dynamic = text("OMP_DYNAMIC") == "true" || text("OMP_DYNAMIC") == "TRUE";
    env.cpu_kernels = text("ARGOSY_CPU_KERNELS");
    env.log_level = text("ARGOSY_LOG", env.log_level);
    env.terminal = text("TERM");
    if (const int columns = number("COLUMNS", 0); columns > 0) env.columns = columns;
    return env;
}

}  // namespace argosy
