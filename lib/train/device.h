// Where a rank computes.
#pragma once

#include <c10/core/Device.h>

#include "mpi/comm.h"

namespace argosy::train {

/// COLLECTIVE. Of the GPUs that this rank sees the one with its number on the node, which becomes this
/// thread's; the processor where no rank sees one. Says so on the log, and what in the environment makes GPUs
/// slow. Throws UserError, on all ranks alike, where some see one and others do not.
c10::Device choose_device(const mpi::Comm& world);

/// Whether that was a GPU, for this thread. Throws nothing.
bool computes_on_gpu();

}  // namespace argosy::train
