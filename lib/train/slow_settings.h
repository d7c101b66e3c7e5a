// What in the environment makes a run on GPUs slow, said when it starts.
#pragma once

#include "mpi/comm.h"

namespace argosy::train {

/// COLLECTIVE. Warns of the slow settings of all ranks that matter here, a line each, on rank 0.
void warn_of_slow_settings(const mpi::Comm& world);

}  // namespace argosy::train
