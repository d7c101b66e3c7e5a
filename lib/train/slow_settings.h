// What in the environment makes a run on GPUs slow, said when it starts.
#pragma once

#include "mpi/comm.h"

namespace argosy::train {

/// COLLECTIVE. Warns of the slow settings of all ranks that matter here, a line each, on rank 0; this node has
/// `ranks_on_node` of them.
void warn_of_slow_settings(const mpi::Comm& world, int ranks_on_node);

}  // namespace argosy::train
