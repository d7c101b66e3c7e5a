// Warns of environment variables that make a job slow (base/environment.h lists them), and finds the network
// adapters on which some of them depend.
#pragma once

#include <filesystem>

#include "mpi/comm.h"

namespace argosy::setup {

/// COLLECTIVE. Rank 0 logs the settings that make this job slow on any rank, a line for each value.
/// `ranks_on_node` is the number of this job's ranks on this node.
void warn_of_slow_settings(const mpi::Comm& world, int ranks_on_node);

/// Whether a port of an InfiniBand or RoCE adapter is up. `adapters` is the kernel's folder of adapters.
bool has_active_adapter(const std::filesystem::path& adapters = "/sys/class/infiniband");

}  // namespace argosy::setup
