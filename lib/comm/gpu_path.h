// How tensors that GPUs hold travel between ranks, chosen once for all of them.
#pragma once

#include <span>

#include "comm/communicator.h"
#include "mpi/comm.h"

namespace argosy::comm {

enum class GpuPath {
    None,    // not at all: this program's tensors lie in the host's memory
    Choose,  // Nccl where every rank has a GPU of its own, Host where some share one, None without any
    Nccl,
    Host,  // through the host's memory, as tensors there do
};

/// COLLECTIVE: whether every rank sees a GPU; false where none does. Throws UserError, on all ranks alike,
/// where some see one and others do not.
bool all_see_gpus(const mpi::Comm& world);

/// COLLECTIVE: `wanted`, or what it is to be where that is Choose; warns where that is Host. REQUIRES: each
/// rank that sees a GPU has made it its thread's own (gpu::use). Throws UserError for what the ranks' GPUs do
/// not allow: a path without GPUs, Nccl where ranks share one.
GpuPath choose_gpu_path(const mpi::Comm& world, GpuPath wanted);

/// Whether a GPU holds the tensors of these operations. Throws RunError where it holds some of them.
bool on_gpu(std::span<const Op> ops);

}  // namespace argosy::comm
