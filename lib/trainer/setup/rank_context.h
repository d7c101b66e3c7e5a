// The context of a rank: its device, memory and threads, and the groups and the mesh of all ranks.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/environment.h"
#include "base/timeline.h"
#include "comm/communicator.h"
#include "comm/mesh.h"
#include "config/job_config.h"
#include "mpi/comm.h"
#include "observe/memory.h"
#include "ops/ops_context.h"

namespace argosy::setup {

struct RankContext {
    /// COLLECTIVE. Makes the calling thread the one that computes, and counts the memory of its tensors. Logs
    /// settings that have no effect or make ranks slow. Throws UserError if the number of ranks does not fit
    /// the mesh, if only some ranks see a GPU, or if the job requested GPUs and no rank sees one. Other
    /// errors are those of set_determinism() and operation_path().
    RankContext(const mpi::Comm& ranks, const config::JobConfig& config, const Environment& environment);

    /// After the first step, shortens the time limit of waits for other ranks from init_timeout_seconds to
    /// train_timeout_seconds. Rank 0 logs the memory of its NCCL communicators.
    void end_start_up(const config::Comm& limits) const;

    const double start_seconds = seconds_now();  // of the run
    const c10::Device device;
    const std::vector<std::string> slow_settings;  // on rank 0 of a job on GPUs; see warn_of_slow_settings()
    observe::MemoryMeter memory;
    ops::OpsContext tensors;
    Timeline timeline;
    const std::unique_ptr<comm::Communicator> world;
    /// The group of all ranks for agreement between steps. The group carries no training data.
    const std::unique_ptr<comm::Communicator> control;
    comm::Mesh mesh;
};

}  // namespace argosy::setup
