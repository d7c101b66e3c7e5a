// The process of a rank: what the configuration changes in it, the operations with which it computes, and the
// environment variables that make it slow.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/environment.h"
#include "config/job_config.h"
#include "mpi/comm.h"
#include "ops/ops_context.h"

namespace argosy::setup {

/// Applies debug.deterministic. Call this once, before any tensor is made. If another setting prevents runs
/// from repeating exactly, throws UserError or logs a line.
void set_determinism(const config::JobConfig& config, const Environment& environment);

/// Gives CUDA's streams as many hardware queues as possible (CUDA_DEVICE_MAX_CONNECTIONS), unless the
/// environment sets their number. Call this first in main: CUDA reads the variable at its first call, which
/// an MPI that knows CUDA makes, and no other thread may read the environment meanwhile.
void separate_streams();

/// Whether this thread computes on a GPU. Never throws.
bool computes_on_gpu();

/// The implementation of operations. Logs which kernels operations use. Throws UserError as kernels::table()
/// does.
ops::Path operation_path(const config::JobConfig& config);

/// COLLECTIVE. Rank 0 logs it if ranks compute with kernels of different instruction sets, or on GPUs of
/// different kinds. Ranks may: their results differ by rounding.
void log_different_kernels(const mpi::Comm& world);

/// COLLECTIVE on ranks with GPUs. Throws UserError on all ranks if they have loaded different versions of
/// cuBLASLt, NCCL or CUDA's runtime. The algorithm of a product follows from cuBLASLt's version, the kind of
/// GPU and the product: nothing is timed. Ranks with the same kind of GPU therefore choose the same
/// algorithm, also for a product that is new in a later step, and no choice is exchanged.
void require_same_libraries(const mpi::Comm& world);

/// COLLECTIVE. Rank 0 logs the environment variables (base/environment.h lists them) that make this job slow
/// on any rank, a line for each value, and returns these lines.
std::vector<std::string> warn_of_slow_settings(const mpi::Comm& world);

/// Whether a port of an InfiniBand or RoCE adapter is up: only then do some of these variables matter.
/// `adapters` is the kernel's folder of adapters.
bool has_active_adapter(const std::filesystem::path& adapters = "/sys/class/infiniband");

}  // namespace argosy::setup
