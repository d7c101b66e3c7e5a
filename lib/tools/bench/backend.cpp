#include "bench/backend.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/clock.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/log.h"
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

/// Collectives over MPI on host memory, with MPI's non-blocking calls, as in training (lib/platform/comm): a
/// call returns at once, and wait() polls its request until a timeout. The host's clock times the iterations;
/// an iteration begins when the previous one has ended on this rank.
class MpiBackend : public Backend {
  public:
    MpiBackend(mpi::Comm group, double timeout_seconds)
        : group_(std::move(group)),
          timeout_seconds_(timeout_seconds),
          rank_(group_.rank()),
          size_(group_.size()) {}

    int rank() const override { return rank_; }
    int size() const override { return size_; }

    Memory allocate(size_t bytes) const override {
        constexpr auto kAligned = std::align_val_t(4096);
        auto* const memory = static_cast<std::byte*>(::operator new(bytes, kAligned, std::nothrow));
        if (!memory) throw RunError("no memory for a buffer of {} bytes: use a smaller --maxbytes", bytes);
        std::memset(memory, 0, bytes);  // makes the kernel map all pages now, not during a measurement
        return {memory, [](std::byte* pointer) { ::operator delete(pointer, kAligned); }};
    }
    void write(std::byte* to, std::span<const std::byte> from) const override {
        std::memcpy(to, from.data(), from.size());
    }
    void read(std::span<std::byte> to, const std::byte* from) const override {
        std::memcpy(to.data(), from, to.size());
    }
    bool result_at_start() const override { return true; }

    void all_gather(const Call& call) override {
        requests_.push_back(group_.all_gather(call.out, call.in, call.count, call.type));
    }
    void all_reduce(const Call& call) override {
        requests_.push_back(group_.all_reduce(call.out, call.in, call.count, call.type, call.reduction));
    }
    void all_to_all(const Call& call) override {
        requests_.push_back(group_.all_to_all(call.out, call.in, call.count, call.type));
    }
    /// MPI broadcasts from and to one buffer per rank: the input of the root, the output of every other rank.
    void broadcast(const Call& call) override {
        auto* const buffer = rank_ == call.root ? const_cast<std::byte*>(call.in) : call.out;
        requests_.push_back(group_.broadcast(buffer, call.count, call.type, call.root));
    }
    void reduce_scatter(const Call& call) override {
        requests_.push_back(group_.reduce_scatter(call.out, call.in, call.count, call.type, call.reduction));
    }
    /// In place, first copies the data to send, as MPI_Sendrecv_replace does: received data may overwrite the
    /// buffer before the send has read it. REQUIRES: no other send in place is under way.
    void send_receive(const Call& call) override {
        const std::byte* source = call.in;
        if (call.in == call.out) {
            outgoing_.assign(call.in, call.in + call.count * size_bytes(call.type));
            source = outgoing_.data();
        }
        const int before = (rank_ + size_ - 1) % size_, next = (rank_ + 1) % size_;
        requests_.push_back(group_.receive(call.out, call.count, call.type, before));
        requests_.push_back(group_.send(source, call.count, call.type, next, /*synchronous=*/false));
    }

    void wait() override {
        if (!done_within(timeout_seconds_, [&] { return mpi::test_all(requests_); })) throw WaitTimeout();
        requests_.clear();
    }
    void start_clock() override { ends_ = {seconds_now()}; }
    void end_iteration() override {
        wait();
        ends_.push_back(seconds_now());
    }
    std::vector<double> iteration_seconds() override {
        std::vector<double> seconds;
        for (size_t i = 1; i < ends_.size(); ++i) seconds.push_back(ends_[i] - ends_[i - 1]);
        return seconds;
    }

    /// Empty: MPI does not report its connections.
    std::vector<std::string> connections() const override { return {}; }

  private:
    mpi::Comm group_;
    double timeout_seconds_;
    int rank_, size_;
    std::vector<mpi::Request> requests_;
    std::vector<std::byte> outgoing_;  // a copy of data that is sent in place
    std::vector<double> ends_;         // of iterations, in seconds; the first is the start of the clock
};

}  // namespace

std::unique_ptr<Backend> make_mpi_backend(mpi::Comm group, double timeout_seconds) {
    return std::make_unique<MpiBackend>(std::move(group), timeout_seconds);
}

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
    if (choice.backend == "mpi") return make_mpi_backend(std::move(group), timeout_seconds);
    try {
        return make_nccl_backend(group, choice.devices[world.rank()].number, timeout_seconds,
                                 choice.log.get());
    } catch (const WaitTimeout&) {
        throw control.timeout_error(what);
    }
}

}  // namespace argosy::bench
