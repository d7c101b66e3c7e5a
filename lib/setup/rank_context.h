// The context of a rank: its device, memory and threads, and the groups and the mesh of all ranks.
// Also chooses the device, and warns of settings that make ranks slow.
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
    /// settings that have no effect or make ranks slow. Throws UserError if the number of ranks does not fit
    /// the mesh. Other errors are those of choose_device(), set_determinism() and operation_path().
    RankContext(const mpi::Comm& ranks, const config::JobConfig& config, const Environment& environment);

    const c10::Device device;
    observe::MemoryMeter memory;
    ops::TensorThread tensors;
    const std::unique_ptr<comm::Communicator> world;
    /// The group of all ranks for agreement between steps. The group carries no training data.
    const std::unique_ptr<comm::Communicator> control;
    comm::Mesh mesh;
};

/// COLLECTIVE. Chooses the GPU whose number is the rank's number on its node, modulo the number of GPUs that
/// this rank sees, and makes that GPU current for this thread. Chooses the CPU if no rank sees a GPU. Logs
/// rank 0's GPU, and the environment variables that slow GPUs down. Throws UserError on all ranks if only
/// some ranks see a GPU.
c10::Device choose_device(const mpi::Comm& world);

/// Whether this thread computes on a GPU. Never throws.
bool computes_on_gpu();

/// COLLECTIVE. Rank 0 logs the settings that make this job slow on any rank, a line for each value.
/// `ranks_on_node` is the number of this job's ranks on this node.
void warn_of_slow_settings(const mpi::Comm& world, int ranks_on_node);

/// Whether a port of an InfiniBand or RoCE adapter is up. `adapters` is the kernel's folder of adapters.
bool has_active_adapter(const std::filesystem::path& adapters = "/sys/class/infiniband");

}  // namespace argosy::setup
