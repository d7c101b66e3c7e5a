// The interface through which the benchmark runs collectives, over MPI and over NCCL. A call starts an
// operation and may return before the operation ends. Several operations may be under way; wait() waits for
// all of them. allocate() returns the memory of a buffer. The host accesses a buffer only through write() and
// read(), and only while no operation is under way.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/control_channel.h"
#include "bench/element.h"
#include "cuda/device.h"
#include "mpi/comm.h"
#include "nccl/connection_log.h"

namespace argosy::bench {

/// One operation. In place, `in` and `out` lie in one buffer, at the offsets that Collective::in_place gives.
struct Call {
    const std::byte* in;
    std::byte* out;
    size_t count;  // elements of a chunk
    ElementType type;
    Reduction reduction;  // unused by a collective that reduces nothing
    int root;
};

/// A wait has timed out. The backend does not know the missing ranks; its caller finds them with
/// ControlChannel::timeout_error.
class WaitTimeout : public std::exception {};

class Backend {
  public:
    virtual ~Backend() = default;

    /// This process's rank in the group that the backend runs on, and the group's size.
    virtual int rank() const = 0;
    virtual int size() const = 0;

    using Memory = std::unique_ptr<std::byte, std::function<void(std::byte*)>>;
    virtual Memory allocate(size_t bytes) const = 0;
    virtual void write(std::byte* to, std::span<const std::byte> from) const = 0;
    virtual void read(std::span<std::byte> to, const std::byte* from) const = 0;

    /// See GroupPosition::result_at_start.
    virtual bool result_at_start() const = 0;

    virtual void all_gather(const Call&) = 0;
    virtual void all_reduce(const Call&) = 0;
    virtual void all_to_all(const Call&) = 0;
    virtual void broadcast(const Call&) = 0;
    virtual void reduce_scatter(const Call&) = 0;
    virtual void send_receive(const Call&) = 0;  // a ring: sends to rank + 1, receives from rank - 1

    /// Returns when all operations that were started have ended. Throws WaitTimeout after a timeout.
    virtual void wait() = 0;

    /// start_clock() begins the first iteration; end_iteration() ends an iteration and begins the next one.
    /// An iteration consists of the operations that start between these calls.
    virtual void start_clock() = 0;
    virtual void end_iteration() = 0;
    /// Waits for all operations. Returns the seconds of each iteration, from the end of the previous
    /// iteration to its own end.
    virtual std::vector<double> iteration_seconds() = 0;

    /// Describes the connections of this rank that have been used so far, if the library reports them.
    virtual std::vector<std::string> connections() const = 0;
};

/// The library that moves the data of a run (MPI or NCCL), and the device of each rank. Both are chosen once,
/// and all ranks have the same BackendChoice.
struct BackendChoice {
    std::string backend;                       // "mpi" or "nccl"
    std::string library;                       // name and version of MPI or NCCL
    std::vector<cuda::Device> devices;         // by rank of the world; empty: host memory
    std::unique_ptr<nccl::ConnectionLog> log;  // null over MPI, and where the user sets NCCL_DEBUG
};

/// COLLECTIVE over `world`: chooses `backend`, "mpi" or "nccl". If it is empty: NCCL if this build has NCCL
/// and every rank sees a GPU, else MPI. Rank n of a node (from 0) gets device n, or device 0 if the launcher
/// shows the rank only one. Throws UserError, which names the ranks without a GPU or with a shared one.
BackendChoice choose_backend(const mpi::Comm& world, const ControlChannel& control,
                             const std::string& backend);

/// A backend over MPI on host memory.
std::unique_ptr<Backend> make_mpi_backend(mpi::Comm group, double timeout_seconds);

/// A backend over NCCL on the memory of this rank's GPU (nccl_backend.cpp). COLLECTIVE over `group`, which
/// broadcasts NCCL's id. `log`: of NCCL, for connections(); null: unknown. Throws WaitTimeout after a
/// timeout.
std::unique_ptr<Backend> make_nccl_backend(const mpi::Comm& group, int device, double timeout_seconds,
                                           nccl::ConnectionLog* log);

/// Makes a backend for the group `members`. COLLECTIVE over `world`: every rank passes the members of its own
/// group. REQUIRES: `members` are ranks of the world in ascending order, this rank among them. Throws
/// TimeoutError, which names the missing ranks.
std::unique_ptr<Backend> make_backend(const mpi::Comm& world, const ControlChannel& control,
                                      std::span<const int> members, const BackendChoice& choice,
                                      double timeout_seconds);

/// The type of make_backend(), for callers that let a test replace the function.
using MakeBackend = std::function<std::unique_ptr<Backend>(
    const mpi::Comm& world, const ControlChannel& control, std::span<const int> members,
    const BackendChoice& choice, double timeout_seconds)>;

}  // namespace argosy::bench
