// Where a rank of a job computes, and with whom: its device, memory and threads, and the mesh of all ranks.
#pragma once

#include <c10/core/Device.h>

#include <filesystem>
#include <memory>

#include "base/environment.h"
#include "comm/communicator.h"
#include "comm/mesh.h"
#include "config/job_config.h"
#include "mpi/comm.h"
#include "observe/memory.h"
#include "ops/tensor_thread.h"

namespace argosy::setup {

struct RankContext {
    /// COLLECTIVE. Makes the calling thread the one that computes, and counts the memory of its tensors. Logs
    /// settings that have no effect or make ranks slow. Throws UserError if the ranks do not fit the mesh.
    RankContext(const mpi::Comm& ranks, const config::JobConfig& config, const Environment& environment);

    const c10::Device device;
    observe::MemoryMeter memory;
    ops::TensorThread tensors;
    const std::unique_ptr<comm::Communicator> world;
    /// All ranks, for agreement between steps, separate from the groups that carry training data.
    const std::unique_ptr<comm::Communicator> control;
    comm::Mesh mesh;
};

/// COLLECTIVE. Chooses among the GPUs that this rank sees by the rank's number on its node, modulo their
/// count, and makes that GPU this thread's current one. Chooses the CPU if no rank sees a GPU. Logs the GPU
/// and the environment variables that slow GPUs down. Throws UserError, on all ranks alike, if only some
/// ranks see a GPU.
c10::Device choose_device(const mpi::Comm& world);

/// Whether this thread computes on a GPU. Throws nothing.
bool computes_on_gpu();

/// COLLECTIVE. Rank 0 logs the slow settings of all ranks that matter for this job, a line for each value.
/// `ranks_on_node`: how many ranks of the job this node has.
void warn_of_slow_settings(const mpi::Comm& world, int ranks_on_node);

/// Whether a port of an InfiniBand or RoCE adapter is up. `adapters`: folder in which the kernel lists them.
bool has_active_adapter(const std::filesystem::path& adapters = "/sys/class/infiniband");

}  // namespace argosy::setup
