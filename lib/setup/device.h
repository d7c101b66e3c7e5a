// Chooses the device on which this rank computes: a GPU of its node, or the CPU.
#pragma once

#include <c10/core/Device.h>

#include "mpi/comm.h"

namespace argosy::setup {

/// COLLECTIVE. Chooses among the GPUs that this rank sees by the rank's number on its node, modulo their
/// count, and makes that GPU this thread's current one. Chooses the CPU if no rank sees a GPU. Logs the GPU
/// and the environment variables that slow GPUs down. Throws UserError, on all ranks alike, if only some
/// ranks see a GPU.
c10::Device choose_device(const mpi::Comm& world);

/// Whether this thread computes on a GPU. Throws nothing.
bool computes_on_gpu();

}  // namespace argosy::setup
