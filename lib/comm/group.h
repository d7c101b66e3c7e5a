// A group of ranks as every backend is made from it, and the choice of the backend.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"
#include "comm/exchange.h"
#include "comm/gpu_path.h"
#include "comm/gpu_side.h"
#include "mpi/comm.h"
#include "mpi/roll.h"

namespace argosy::comm {

struct GroupOptions {
    double timeout_seconds = 100;  // a wait that takes longer fails, and names who is missing
    /// Sends complete only once received: proves that a schedule needs no buffering.
    bool synchronous_sends = false;
    /// Most memory that a rank lends a group whose ranks are all on one node, for their collectives; 0: MPI
    /// alone.
    int64_t shared_memory_bytes = 0;
    /// Where this rank computes, and how tensors that a GPU holds travel.
    c10::Device device = c10::kCPU;
    GpuPath gpu_path = GpuPath::None;
};

class Group {
  public:
    /// COLLECTIVE: all ranks of `comm`. REQUIRES: the options' path for tensors of GPUs is chosen.
    Group(mpi::Comm comm, std::string name, const GroupOptions& options);
    /// COLLECTIVE over `ranks`, numbers in this group.
    Group subgroup(std::span<const int> ranks, std::string name) const {
        return Group(*this, ranks, std::move(name));
    }

    const mpi::Comm& comm() const { return comm_; }
    const std::string& name() const { return name_; }
    const GroupOptions& options() const { return options_; }
    int rank() const { return rank_; }
    int size() const { return static_cast<int>(members_.size()); }
    /// By rank, their numbers in the outermost group.
    const std::vector<int>& members() const { return members_; }
    /// Of this and all groups that come from the same one.
    Exchanges& exchanges() const { return *exchanges_; }
    mpi::Roll& roll() const { return *roll_; }
    /// None where no tensors travel by NCCL.
    const std::shared_ptr<GpuSide>& gpu() const { return gpu_; }

    /// What a rank waits for, in messages.
    std::string name_of(OpKind kind, int64_t operation) const;
    /// For a wait in vain.
    TimeoutError timeout(const std::string& operation, const mpi::Attendance& found) const;

  private:
    Group(const Group& whole, std::span<const int> ranks, std::string name);

    mpi::Comm comm_;
    std::string name_;
    GroupOptions options_;
    int rank_;
    std::vector<int> members_;
    std::shared_ptr<Exchanges> exchanges_;
    std::shared_ptr<mpi::Roll> roll_;
    std::shared_ptr<GpuSide> gpu_;
};

class Watchdog;

/// COLLECTIVE over the group. For tensors in the host's memory: shared memory where the options allow it and
/// all ranks are on one node, else MPI. For those of GPUs what the options say. A group that comes from
/// another has the watchdog of that one.
std::unique_ptr<Communicator> make_communicator(std::shared_ptr<const Group> group,
                                                std::shared_ptr<Watchdog> watchdog = nullptr);
std::unique_ptr<Communicator> make_communicator(mpi::Comm comm, std::string name,
                                                const GroupOptions& options = {});

}  // namespace argosy::comm
