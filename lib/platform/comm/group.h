// A Group holds what every backend of a group of ranks needs: the MPI communicator, the options, the members'
// numbers in the outermost group, and the objects that it shares with its subgroups. make_communicator()
// chooses the backend.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"
#include "comm/exchange.h"
#include "mpi/comm.h"
#include "watch/gpu_state.h"
#include "watch/host_waits.h"
#include "watch/watchdog.h"

namespace argosy::comm {

/// The path of tensors on GPUs between ranks.
enum class GpuPath {
    None,  // no tensors on GPUs: all tensors are in the host's memory
    Auto,  // Nccl, or None without GPUs
    Nccl,
};

struct GroupOptions {
    double timeout_seconds = 100;  // a longer wait fails with an error that names the missing ranks
    /// The setting of timeout_seconds, for that error. Communicator::limit_waits() changes both.
    const char* timeout_setting = "comm.train_timeout_seconds";
    double storage_timeout_seconds = watch::Watchdog::kStorageLimit.seconds;  // of waits for the file system
    /// A send completes only once its receiver has started to receive: a run then proves that a pipeline
    /// schedule needs no buffering.
    bool synchronous_sends = false;
    /// Maximum shared memory of each rank for the collectives of a group within one node; 0: use MPI only.
    int64_t shared_memory_bytes = 0;
    /// The device on which this rank computes, and the path of tensors on a GPU.
    c10::Device device = c10::kCPU;
    GpuPath gpu_path = GpuPath::None;
    /// Limits of the channels (nccl::Comm) of each NCCL communicator for collectives, and for Send and
    /// Receive.
    int collective_channels = 0, message_channels = 0;
    bool registered_memory = false;  // of Communicator::make_tensor()
    bool peer_copies = false;        // along the ring of Communicator::open_ring()
    /// If ranks wait for each other for too long, each one writes its last operations to a file in this
    /// folder (watch/FORMAT.md). Empty: no files.
    std::filesystem::path flight_folder = {};
    int watchdog_fan_out = watch::Watchdog::kFanOut;
};

class Group {
  public:
    /// COLLECTIVE: all ranks of `comm`. REQUIRES: options.gpu_path is not GpuPath::Auto.
    Group(mpi::Comm comm, std::string name, const GroupOptions& options);
    /// COLLECTIVE over `ranks`, which are rank numbers in this group.
    Group subgroup(std::span<const int> ranks, std::string name) const {
        return Group(*this, ranks, std::move(name));
    }

    const mpi::Comm& comm() const { return comm_; }
    const std::string& name() const { return name_; }
    const GroupOptions& options() const { return options_; }
    int rank() const { return rank_; }
    int size() const { return static_cast<int>(members_.size()); }
    /// The members' numbers in the outermost group, by rank.
    const std::vector<int>& members() const { return members_; }
    /// Objects that the outermost group and all its subgroups share.
    Exchanges& exchanges() const { return *exchanges_; }
    watch::Watchdog& watchdog() const { return *watchdog_; }
    /// Null unless gpu_path is GpuPath::Nccl.
    const std::shared_ptr<watch::GpuState>& gpu() const { return gpu_; }

    /// Records an operation in the watchdog's flight recorder, and adds it to `launch`. Each submission
    /// passes here once, in the backend that sends it.
    void record(const Op& op, watch::FlightSpan& launch,
                watch::FlightState state = watch::FlightState::UnderWay) const;
    /// The same for the launch of a graph.
    watch::FlightSpan record_launch(const std::string& what) const;

    /// Describes the wait for an operation of this group, for watch::HostWait.
    watch::AwaitedOperation awaited(OpKind kind, int64_t number) const;
    /// Describes the wait of a call that makes the connections of a group of these members. `what` names the
    /// result of the call in messages.
    watch::AwaitedOperation awaited_making(const std::string& what, const std::string& group,
                                           const std::vector<int>& members) const;
    /// Returns the error for a wait that has timed out.
    TimeoutError timeout(const watch::AwaitedOperation& awaited, const watch::WaitFailure& failure) const;

  private:
    Group(const Group& parent, std::span<const int> ranks, std::string name);

    mpi::Comm comm_;
    std::string name_;
    GroupOptions options_;
    int rank_;
    std::vector<int> members_;
    std::shared_ptr<Exchanges> exchanges_;
    std::shared_ptr<watch::GpuState> gpu_;
    std::shared_ptr<watch::Watchdog> watchdog_;
    int flight_number_;  // of this group in the flight recorder
};

/// A Communicator of the ranks of a Group: the base of all backends.
class GroupCommunicator : public Communicator {
  public:
    explicit GroupCommunicator(std::shared_ptr<const Group> group)
        : Communicator(group->name(), group->options().device), group_(std::move(group)) {}

    int rank() const override { return group_->rank(); }
    int size() const override { return group_->size(); }
    std::unique_ptr<Communicator> subgroup(std::span<const int> ranks, std::string name) const override;
    void limit_waits(double seconds, const char* setting) override {
        group_->watchdog().set_limit({seconds, setting});
    }

  protected:
    const std::shared_ptr<const Group> group_;
};

/// COLLECTIVE: returns true if every rank has a GPU, and false if none does. `num_own` is the number of GPUs
/// that this rank sees, or 0 if it must not use them. Throws UserError on all ranks if only some of them have
/// one.
bool all_see_gpus(const mpi::Comm& world, int num_own);

/// COLLECTIVE: returns `wanted`, or the path that Auto becomes. Throws UserError if Nccl is wanted without
/// GPUs or in a build without CUDA, and if ranks share a GPU or NCCL is too old. REQUIRES: each rank that
/// sees a GPU has selected it for this thread (gpu::use).
GpuPath choose_gpu_path(const mpi::Comm& world, GpuPath wanted);

/// COLLECTIVE over the group: the backend of tensors in the host's memory.
std::unique_ptr<Communicator> make_host_communicator(std::shared_ptr<const Group> group);
/// COLLECTIVE over the group. The communicator sends tensors in the host's memory through shared memory if
/// the options allow it and all ranks are on one node, else by MPI. Tensors on a GPU take options.gpu_path.
std::unique_ptr<Communicator> make_communicator(std::shared_ptr<const Group> group);
/// COLLECTIVE over `comm`: makes the outermost group, with a gpu_path from choose_gpu_path().
std::unique_ptr<Communicator> make_communicator(mpi::Comm comm, std::string name,
                                                const GroupOptions& options = {});

}  // namespace argosy::comm
