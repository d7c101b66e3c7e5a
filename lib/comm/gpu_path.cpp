#include "comm/gpu_path.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/error.h"
#include "base/log.h"
#include "cuda/device.h"
#include "gpu/device.h"
#include "mpi/roll.h"
#include "mpi/tell_all.h"
#include "nccl/communicator.h"

namespace argosy::comm {
namespace {

constexpr size_t kMostNamed = 16;

/// A rank as others see it. NCCL takes ranks for such on different nodes whose NCCL_HOSTID differ.
struct Card {
    char host[128] = {};
    char pci_bus_id[32] = {};
};

Card own_card() {
    Card card;
    gethostname(card.host, sizeof(card.host) - 1);
    if (const std::string id = Environment::read().nccl_host_id; !id.empty()) {
        std::ranges::fill(card.host, 0);
        id.copy(card.host, sizeof(card.host) - 1);
    }
    cuda::describe_device(cuda::current_device())
        .pci_bus_id.copy(card.pci_bus_id, sizeof(card.pci_bus_id) - 1);
    return card;
}

std::vector<Card> cards_of_all(const mpi::Comm& world) {
    const Card own = own_card();
    return mpi::tell_all(world, std::span(&own, 1), "which GPUs the ranks have");
}

/// Ranks that have the GPU of one before them.
std::vector<int> ranks_that_share(const std::vector<Card>& cards) {
    std::vector<int> sharing;
    std::map<std::pair<std::string, std::string>, int> owners;
    for (int rank = 0; const Card& card : cards) {
        if (!owners.emplace(std::pair(card.host, card.pci_bus_id), rank).second) sharing.push_back(rank);
        ++rank;
    }
    return sharing;
}

}  // namespace

bool all_see_gpus(const mpi::Comm& world) {
    const int own = cuda::device_count();
    std::vector<int> without;
    for (int rank = 0; const int count : mpi::tell_all(world, std::span(&own, 1), "how many GPUs they see")) {
        if (count == 0) without.push_back(rank);
        ++rank;
    }
    if (without.empty() || std::ssize(without) == world.size()) return without.empty();
    throw UserError(
        "rank {} sees no GPU, others do: look at nvidia-smi there, CUDA_VISIBLE_DEVICES and the job's --gpus "
        "options",
        mpi::listed(without, kMostNamed));
}

GpuPath choose_gpu_path(const mpi::Comm& world, GpuPath wanted) {
    if (nccl::version() == 0 && (wanted == GpuPath::Nccl || wanted == GpuPath::Host)) {
        throw UserError(
            "comm.gpu_path says how tensors on GPUs travel, and this build has no CUDA: leave it out, or "
            "configure "
            "with -DARGOSY_CUDA=ON (preset cuda)");
    }
    if (nccl::version() == 0) return GpuPath::None;
    if (wanted != GpuPath::Choose) return wanted;
    if (!all_see_gpus(world)) return GpuPath::None;
    const std::vector<int> sharing = ranks_that_share(cards_of_all(world));
    if (sharing.empty()) return GpuPath::Nccl;
    if (world.rank() == 0) {
        spdlog::warn(
            "rank {} has the GPU of another rank, and NCCL wants one for each: tensors travel through the "
            "host's "
            "memory, which is slow, and nothing is launched as a graph",
            mpi::listed(sharing, kMostNamed));
    }
    return GpuPath::Host;
}

bool on_gpu(std::span<const Op> ops) {
    const std::vector<at::Tensor> tensors = tensors_of(ops);
    const auto held = std::ranges::count_if(tensors, gpu::holds);
    ARGOSY_CHECK(held == 0 || held == std::ssize(tensors), "{} of {} tensors of a submission are on a GPU",
                 held, tensors.size());
    return held > 0;
}

}  // namespace argosy::comm
