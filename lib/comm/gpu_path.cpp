#include "comm/gpu_path.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "cuda/device.h"
#include "gpu/device.h"
#include "mpi/rank_list.h"
#include "mpi/start_up.h"
#include "nccl/communicator.h"
#include "nccl/device_id.h"

namespace argosy::comm {
namespace {

/// COLLECTIVE: returns the ranks that share their GPU with a lower rank.
std::vector<int> ranks_that_share(const mpi::Comm& world) {
    const nccl::DeviceId own = nccl::device_id(cuda::current_device());
    const auto places = mpi::all_gather_at_start(world, std::span(&own, 1), "the ranks' GPUs");
    std::vector<int> ranks;
    for (const auto& [owner, rank] : nccl::ranks_that_share(places)) ranks.push_back(rank);
    return ranks;
}

void check_version() {
    if (nccl::version() >= nccl::kOldestVersion) return;
    throw UserError(
        "this process got NCCL {}, and needs 2.26 or newer: look for an older libnccl in LD_LIBRARY_PATH "
        "and the modules that are loaded",
        nccl::version_text());
}

/// COLLECTIVE: returns Nccl or, if ranks share a GPU, Host. Throws UserError if they share one and Nccl is
/// wanted.
GpuPath fastest_path(const mpi::Comm& world, GpuPath wanted) {
    const std::vector<int> sharing = ranks_that_share(world);
    if (sharing.empty()) {
        check_version();
        return GpuPath::Nccl;
    }
    if (wanted == GpuPath::Nccl) {
        throw UserError(
            "comm.gpu_path = nccl, but rank {} shares its GPU with another rank, and NCCL needs one GPU per "
            "rank: "
            "start as many ranks on a node as it has GPUs, or leave comm.gpu_path out",
            mpi::listed(sharing));
    }
    if (world.rank() == 0) {
        spdlog::warn(
            "rank {} has the GPU of another rank, and NCCL wants one for each: tensors travel through the "
            "host's memory, which is slow",
            mpi::listed(sharing));
    }
    return GpuPath::Host;
}

}  // namespace

bool all_see_gpus(const mpi::Comm& world) {
    const int own = cuda::device_count();
    std::vector<int> without;
    for (int rank = 0;
         const int count : mpi::all_gather_at_start(world, std::span(&own, 1), "the number of GPUs")) {
        if (count == 0) without.push_back(rank);
        ++rank;
    }
    if (without.empty() || std::ssize(without) == world.size()) return without.empty();
    throw UserError(
        "rank {} sees no GPU, others do: look at nvidia-smi there, CUDA_VISIBLE_DEVICES and the job's --gpus "
        "options",
        mpi::listed(without));
}

GpuPath choose_gpu_path(const mpi::Comm& world, GpuPath wanted) {
    const bool is_asked_for = wanted == GpuPath::Nccl || wanted == GpuPath::Host;
    if (nccl::version() == 0 && is_asked_for) {
        throw UserError(
            "comm.gpu_path is set, but this build has no CUDA: leave it out, or "
            "configure with -DARGOSY_CUDA=ON (preset cuda)");
    }
    if (nccl::version() == 0 || wanted == GpuPath::None) return GpuPath::None;
    if (!all_see_gpus(world)) {
        if (!is_asked_for) return GpuPath::None;
        throw UserError(
            "comm.gpu_path says how tensors on GPUs travel, and no rank sees a GPU: leave it out, or look at "
            "nvidia-smi, CUDA_VISIBLE_DEVICES and the job's --gpus options");
    }
    return wanted == GpuPath::Host ? GpuPath::Host : fastest_path(world, wanted);
}

bool on_gpu(std::span<const Op> ops) {
    const std::vector<at::Tensor> tensors = tensors_of(ops);
    const auto held = std::ranges::count_if(tensors, gpu::holds);
    ARGOSY_CHECK(held == 0 || held == std::ssize(tensors), "{} of {} tensors of a submission are on a GPU",
                 held, tensors.size());
    return held > 0;
}

}  // namespace argosy::comm
