// Chooses the device on which this rank computes: a GPU of its node, or the CPU.
#pragma once

#include <c10/core/Device.h>

#include <filesystem>

#include "mpi/comm.h"

namespace argosy::setup {

/// COLLECTIVE. Chooses among the GPUs that this rank sees by the rank's number on its node, modulo their
/// count, and makes that GPU this thread's current one. Chooses the CPU if no rank sees a GPU. Logs the GPU
/// and the environment variables that slow GPUs down. Throws UserError, on all ranks alike, if only some
/// ranks see a GPU.
c10::Device choose_device(const mpi::Comm& world);

/// Whether this thread computes on a GPU. Throws nothing.
bool computes_on_gpu();

// Warns at the start of a run of environment variables that make GPUs or communication slow.

/// COLLECTIVE. Rank 0 logs the slow settings of all ranks that matter for this job, a line for each value.
/// `ranks_on_node`: how many ranks of the job this node has.
void warn_of_slow_settings(const mpi::Comm& world, int ranks_on_node);

/// Whether a port of an InfiniBand or RoCE adapter is up. `adapters`: folder in which the kernel lists them.
bool has_active_adapter(const std::filesystem::path& adapters = "/sys/class/infiniband");

}  // namespace argosy::setup
