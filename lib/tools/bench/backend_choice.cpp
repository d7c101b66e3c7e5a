#include "bench/backend.h"

#include <algorithm>

#include "base/environment.h"
#include "base/error.h"
#include "base/log.h"
#include "bench/mpi_backend.h"
#include "bench/nccl_backend.h"
#include "nccl/comm.h"
#include "nccl/device_id.h"

namespace argosy::bench {
namespace {

/// Wire format of a device for ControlChannel::exchange.
struct WireDevice {
    char name[96];
    char pci_bus_id[32];
    size_t memory_bytes;
    int number, capability;
};

WireDevice to_wire(const cuda::Device& device) {
    WireDevice wire = {
        .memory_bytes = device.memory_bytes, .number = device.number, .capability = device.capability};
    device.name.copy(wire.name, sizeof(wire.name) - 1);
    device.pci_bus_id.copy(wire.pci_bus_id, sizeof(wire.pci_bus_id) - 1);
    return wire;
}

cuda::Device from_wire(const WireDevice& wire) {
    return {wire.number, wire.name, wire.pci_bus_id, wire.memory_bytes, wire.capability};
}

bool is_set(const std::string& variable) {
    return std::ranges::any_of(communication_variables(),
                               [&](const auto& one) { return one.first == variable; });
}

/// COLLECTIVE: throws UserError when two ranks have the same GPU.
void require_own_devices(const ControlChannel& control, const std::vector<cuda::Device>& devices,
                         int own_number) {
    const auto sharing = nccl::ranks_that_share(control.exchange(nccl::device_id(own_number)));
    if (sharing.empty()) return;
    const auto& [owner, rank] = sharing.front();
    throw UserError(
        "ranks {} and {} on {} have the same GPU, {} ({}), but NCCL needs one for each rank: start as many "
        "ranks on a node as it has GPUs, or measure over MPI (--backend mpi)",
        owner, rank, control.ranks()[rank].host, devices[rank].pci_bus_id, devices[rank].name);
}

/// COLLECTIVE: the ranks that see no GPU.
std::vector<int> ranks_without_device(const ControlChannel& control, int own_devices) {
    std::vector<int> without;
    for (int rank = 0; const int count : control.exchange(own_devices)) {
        if (count == 0) without.push_back(rank);
        ++rank;
    }
    return without;
}

BackendChoice over_mpi() { return {"mpi", mpi::library(), {}, nullptr}; }

BackendChoice over_nccl(const mpi::Comm& world, const ControlChannel& control, int own_devices) {
    BackendChoice choice = {
        "nccl",
        fmt::format("NCCL {}, CUDA {}, driver for CUDA {}", nccl::version_text(),
                    cuda::version_text(cuda::runtime_version()), cuda::version_text(cuda::driver_version())),
        {},
        nullptr};
    const cuda::Device own = cuda::describe_device(world.place_on_node().number % own_devices);
    for (const WireDevice& wire : control.exchange(to_wire(own))) choice.devices.push_back(from_wire(wire));
    require_own_devices(control, choice.devices, own.number);
    if (!is_set("NCCL_DEBUG")) choice.log = std::make_unique<nccl::ConnectionLog>();
    return choice;
}

}  // namespace

BackendChoice choose_backend(const mpi::Comm& world, const ControlChannel& control,
                             const std::string& backend) {
    if (!backend.empty() && backend != "mpi" && backend != "nccl") {
        throw UserError("--backend is '{}'; it must be mpi or nccl", backend);
    }
    if (backend == "nccl" && nccl::version() == 0) {
        throw UserError(
            "--backend nccl: this build has no NCCL; it measures over MPI on host memory (--backend mpi)");
    }
    if (backend == "mpi" || nccl::version() == 0) return over_mpi();

    const int own_devices = cuda::device_count();
    const std::vector<int> without = ranks_without_device(control, own_devices);
    if (without.empty()) return over_nccl(world, control, own_devices);
    const std::string who = names_of(control.ranks(), without);
    if (backend == "nccl") {
        throw UserError(
            "--backend nccl: {} {} no GPU: check nvidia-smi there, CUDA_VISIBLE_DEVICES and the job's "
            "--gpus options",
            who, without.size() == 1 ? "sees" : "see");
    }
    if (world.rank() == 0 && std::ssize(without) < world.size()) {
        spdlog::warn("{} {} no GPU, but other ranks see one: the collectives run over MPI on host memory",
                     who, without.size() == 1 ? "sees" : "see");
    }
    return over_mpi();
}

std::unique_ptr<Backend> make_backend(const mpi::Comm& world, const ControlChannel& control,
                                      std::span<const int> members, const BackendChoice& choice,
                                      double timeout_seconds) {
    const std::string what = fmt::format("the creation of groups of {} ranks", members.size());
    control.barrier(what);
    mpi::Comm group = control.subgroup(world, members);
    if (choice.backend == "mpi") return std::make_unique<MpiBackend>(std::move(group), timeout_seconds);
    try {
        return std::make_unique<NcclBackend>(group,
                                             NcclBackend::Setup{.device = choice.devices[world.rank()].number,
                                                                .timeout_seconds = timeout_seconds,
                                                                .log = choice.log.get()});
    } catch (const WaitTimeout&) {
        throw control.timeout_error(what);
    }
}

}  // namespace argosy::bench
