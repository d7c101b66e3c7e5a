// Warns at the start of a run of environment variables that make GPUs or communication slow.
#pragma once

#include <filesystem>

#include "mpi/comm.h"

namespace argosy::setup {

/// COLLECTIVE. Rank 0 logs the slow settings of all ranks that matter for this job, a line for each value.
/// `ranks_on_node`: how many ranks of the job this node has.
void warn_of_slow_settings(const mpi::Comm& world, int ranks_on_node);

/// Whether a port of an InfiniBand or RoCE adapter is up. `adapters`: folder in which the kernel lists them.
bool has_active_adapter(const std::filesystem::path& adapters = "/sys/class/infiniband");

}  // namespace argosy::setup
