// Where a rank of a job computes, and with whom: its device, memory and threads, and the mesh of all ranks.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "base/environment.h"
#include "comm/communicator.h"
#include "comm/mesh.h"
#include "config/job_config.h"
#include "mpi/comm.h"
#include "observe/memory.h"
#include "ops/tensor_thread.h"

namespace argosy::setup {

struct Cluster {
    /// COLLECTIVE. Makes the calling thread the one that computes, and counts the memory of its tensors. Logs
    /// settings that have no effect or make ranks slow. Throws UserError if the ranks do not fit the mesh.
    Cluster(const mpi::Comm& ranks, const config::JobConfig& config, const Environment& environment);

    const c10::Device device;
    observe::MemoryMeter memory;
    ops::TensorThread tensors;
    const std::unique_ptr<comm::Communicator> world;
    /// All ranks, for agreement between steps, separate from the groups that carry training data.
    const std::unique_ptr<comm::Communicator> control;
    comm::Mesh mesh;
};

}  // namespace argosy::setup
