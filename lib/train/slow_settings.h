// What in the environment makes a run on GPUs slow, said when it starts.
#pragma once

#include <filesystem>

#include "mpi/comm.h"

namespace argosy::train {

/// COLLECTIVE. Warns of the slow settings of all ranks that matter here, a line for each value, on rank 0;
/// this node has `ranks_on_node` of them.
void warn_of_slow_settings(const mpi::Comm& world, int ranks_on_node);

/// Whether a port of an InfiniBand or RoCE adapter is up; `adapters` is where the kernel shows them.
bool has_active_adapter(const std::filesystem::path& adapters = "/sys/class/infiniband");

}  // namespace argosy::train
