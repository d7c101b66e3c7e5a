#include "comm/gpu_path.h"

#include <span>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "cuda/device.h"
#include "mpi/start_up.h"
#include "nccl/comm.h"
#include "nccl/device_id.h"

namespace argosy::comm {
namespace {

/// COLLECTIVE: returns the ranks that share their GPU with a lower rank.
std::vector<int> ranks_without_own_gpu(const mpi::Comm& world) {
    const nccl::DeviceId own = nccl::device_id(cuda::current_device());
    const auto ids = mpi::all_gather_at_start(world, std::span(&own, 1), "the ranks' GPUs");
    std::vector<int> ranks;
    for (const auto& [owner, rank] : nccl::ranks_that_share(ids)) ranks.push_back(rank);
    return ranks;
}

void require_new_nccl() {
    if (nccl::version() >= nccl::kMinVersion) return;
    throw UserError(
        "this process loaded NCCL {}, but needs 2.26 or newer: look for an older libnccl in LD_LIBRARY_PATH "
        "and in the loaded modules",
        nccl::version_text());
}

/// COLLECTIVE. Throws UserError if ranks share a GPU.
void require_own_gpus(const mpi::Comm& world) {
    const std::vector<int> sharing = ranks_without_own_gpu(world);
    if (sharing.empty()) return;
    throw UserError(
        "rank {} shares its GPU with another rank, and NCCL needs one GPU per rank: start as many ranks on a "
        "node as it has GPUs",
        listed(sharing));
}

}  // namespace

bool all_see_gpus(const mpi::Comm& world, int num_own) {
    std::vector<int> without;
    for (int rank = 0; const int count : mpi::all_gather_at_start(world, std::span<const int>(&num_own, 1),
                                                                  "the number of GPUs")) {
        if (count == 0) without.push_back(rank);
        ++rank;
    }
    if (without.empty() || std::ssize(without) == world.size()) return without.empty();
    throw UserError(
        "rank {} sees no GPU, but other ranks do: check nvidia-smi on its node, CUDA_VISIBLE_DEVICES, "
        "ARGOSY_DEVICE and the job's --gpus options",
        listed(without));
}

GpuPath choose_gpu_path(const mpi::Comm& world, GpuPath wanted) {
    if (nccl::version() == 0 && wanted == GpuPath::Nccl) {
        throw UserError(
            "comm.gpu_path is set, but this build has no CUDA: leave it out, or configure with "
            "-DARGOSY_CUDA=ON (preset cuda)");
    }
    if (nccl::version() == 0 || wanted == GpuPath::None) return GpuPath::None;
    if (!all_see_gpus(world, cuda::device_count())) {
        if (wanted == GpuPath::Auto) return GpuPath::None;
        throw UserError(
            "comm.gpu_path is set, but no rank sees a GPU: leave it out, or check nvidia-smi, "
            "CUDA_VISIBLE_DEVICES and the job's --gpus options");
    }
    require_own_gpus(world);
    require_new_nccl();
    return GpuPath::Nccl;
}

}  // namespace argosy::comm
