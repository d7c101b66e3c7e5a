// Chooses the path of tensors on GPUs between ranks, once for all ranks.
#pragma once

#include "mpi/comm.h"

namespace argosy::comm {

enum class GpuPath {
    None,  // no tensors on GPUs: all tensors are in the host's memory
    Auto,  // Nccl, or None without GPUs
    Nccl,
};

/// COLLECTIVE: returns true if every rank has a GPU, and false if none does. `num_own` is the number of GPUs
/// that this rank sees, or 0 if it must not use them. Throws UserError on all ranks if only some of them have
/// one.
bool all_see_gpus(const mpi::Comm& world, int num_own);

/// COLLECTIVE: returns `wanted`, or the path that Auto becomes. Throws UserError if Nccl is wanted without
/// GPUs or in a build without CUDA, and if ranks share a GPU or NCCL is too old. REQUIRES: each rank that
/// sees a GPU has selected it for this thread (gpu::use).
GpuPath choose_gpu_path(const mpi::Comm& world, GpuPath wanted);

}  // namespace argosy::comm
