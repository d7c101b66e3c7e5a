// Chooses the path of tensors on GPUs between ranks, once for all ranks.
#pragma once

#include "mpi/comm.h"

namespace argosy::comm {

enum class GpuPath {
    None,  // no tensors on GPUs: all tensors are in the host's memory
    Auto,  // Nccl if every rank has its own GPU, Host if ranks share one, None without GPUs
    Nccl,
    Host,  // through the host's memory and the host backend
};

/// COLLECTIVE: returns true if every rank has a GPU, and false if none does. `num_own` is the number of GPUs
/// that this rank sees, or 0 if it must not use them. Throws UserError on all ranks if only some of them have
/// one.
bool all_see_gpus(const mpi::Comm& world, int num_own);

/// COLLECTIVE: returns `wanted`, or the fastest possible path if `wanted` is Auto. Warns if Auto becomes
/// Host. Throws UserError if the path is impossible: Nccl or Host without GPUs or in a build without CUDA,
/// Nccl if ranks share a GPU or NCCL is too old. REQUIRES: each rank that sees a GPU has selected it for this
/// thread (gpu::use).
GpuPath choose_gpu_path(const mpi::Comm& world, GpuPath wanted);

}  // namespace argosy::comm
