#include "bench/carrier.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/environment.h"
#include "base/error.h"
#include "base/log.h"
#include "bench/mpi_backend.h"
#include "bench/nccl_backend.h"
#include "nccl/communicator.h"

namespace argosy::bench {
namespace {

/// A device as it travels between ranks.
struct DeviceCard {
    char name[96];
    char pci_bus_id[32];
    size_t memory_bytes;
    int number, capability;
};

DeviceCard card_of(const cuda::Device& device) {
    DeviceCard card = {
        .memory_bytes = device.memory_bytes, .number = device.number, .capability = device.capability};
    device.name.copy(card.name, sizeof(card.name) - 1);
    device.pci_bus_id.copy(card.pci_bus_id, sizeof(card.pci_bus_id) - 1);
    return card;
}

cuda::Device device_of(const DeviceCard& card) {
    return {card.number, card.name, card.pci_bus_id, card.memory_bytes, card.capability};
}

/// Of `rank` among the ranks of its node.
int number_on_node(const std::vector<RankInfo>& ranks, int rank) {
    return static_cast<int>(std::count_if(ranks.begin(), ranks.begin() + rank, [&](const RankInfo& other) {
        return other.host == ranks[rank].host;
    }));
}

bool is_set(const std::string& variable) {
    return std::ranges::any_of(communication_variables(),
                               [&](const auto& one) { return one.first == variable; });
}

/// NCCL takes a GPU once; where NCCL_HOSTID has ranks pass for nodes, it cannot tell.
void require_own_devices(const std::vector<RankInfo>& ranks, const std::vector<cuda::Device>& devices) {
    if (is_set("NCCL_HOSTID")) return;
    std::map<std::pair<std::string, std::string>, size_t> owners;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
        const auto [owner, is_first] =
            owners.emplace(std::pair(ranks[rank].host, devices[rank].pci_bus_id), rank);
        if (is_first) continue;
        throw UserError(
            "ranks {} and {} on {} have the same GPU, {} ({}), and NCCL wants one for each rank: start as "
            "many ranks on a node as it has GPUs, or measure over MPI (--backend mpi)",
            owner->second, rank, ranks[rank].host, devices[rank].pci_bus_id, devices[rank].name);
    }
}

/// COLLECTIVE: who sees no GPU.
std::vector<int> ranks_without_device(const RollCall& roll, int own_devices) {
    std::vector<int> without;
    for (int rank = 0; const int count : roll.exchange(own_devices)) {
        if (count == 0) without.push_back(rank);
        ++rank;
    }
    return without;
}

Carrier over_mpi() { return {"mpi", mpi::library(), {}, nullptr}; }

Carrier over_nccl(const mpi::Comm& world, const RollCall& roll, int own_devices) {
    Carrier carrier = {
        "nccl",
        fmt::format("NCCL {}, CUDA {}, driver for CUDA {}", nccl::version_text(),
                    cuda::version_text(cuda::runtime_version()), cuda::version_text(cuda::driver_version())),
        {},
        nullptr};
    const int number = number_on_node(roll.ranks(), world.rank()) % own_devices;
    for (const DeviceCard& card : roll.exchange(card_of(cuda::describe_device(number)))) {
        carrier.devices.push_back(device_of(card));
    }
    require_own_devices(roll.ranks(), carrier.devices);
    if (!is_set("NCCL_DEBUG")) carrier.log = std::make_unique<nccl::ConnectionLog>();
    return carrier;
}

}  // namespace

Carrier choose_carrier(const mpi::Comm& world, const RollCall& roll, const Options& options) {
    const std::string& wanted = options.backend;
    if (!wanted.empty() && wanted != "mpi" && wanted != "nccl") {
        throw UserError("--backend {}: there are mpi and nccl", wanted);
    }
    if (wanted == "nccl" && nccl::version() == 0) {
        throw UserError(
            "--backend nccl: this build has no NCCL; it measures over MPI on host memory (--backend mpi)");
    }
    if (wanted == "mpi" || nccl::version() == 0) return over_mpi();

    const int own_devices = cuda::device_count();
    const std::vector<int> without = ranks_without_device(roll, own_devices);
    if (without.empty()) return over_nccl(world, roll, own_devices);
    const std::string who = names_of(roll.ranks(), without);
    if (wanted == "nccl") {
        throw UserError(
            "--backend nccl: {} {} no GPU: look at nvidia-smi there, CUDA_VISIBLE_DEVICES and the job's "
            "--gpus options",
            who, without.size() == 1 ? "sees" : "see");
    }
    if (world.rank() == 0 && std::ssize(without) < world.size()) {
        spdlog::warn("{} {} no GPU, others do: measuring over MPI on host memory", who,
                     without.size() == 1 ? "sees" : "see");
    }
    return over_mpi();
}

std::unique_ptr<Backend> make_backend(const mpi::Comm& world, const RollCall& roll,
                                      std::span<const int> members, const Carrier& carrier,
                                      const Options& options) {
    const std::string what = fmt::format("making groups of {} ranks", members.size());
    roll.assemble(what);
    mpi::Comm group = world.subgroup(members);
    if (carrier.backend == "mpi") {
        if (options.blocking_calls) group = group.duplicate(mpi::Calls::Blocking);
        return std::make_unique<MpiBackend>(std::move(group), options.timeout_seconds);
    }
    try {
        return std::make_unique<NcclBackend>(
            group, NcclBackend::Setup{.device = carrier.devices[world.rank()].number,
                                      .timeout_seconds = options.timeout_seconds,
                                      .wait_for_each = options.blocking_calls,
                                      .log = carrier.log.get()});
    } catch (const NoAnswer&) {
        throw roll.late(what);
    }
}

}  // namespace argosy::bench
