// The C API of MPI behind a move-only handle; only this room includes mpi.h. Buffers are raw memory: the
// caller of an operation keeps its buffers alive and unchanged until the Request is done. One thread makes
// all calls.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <span>
#include <string>

#include "base/element_type.h"

namespace argosy::mpi {

/// Return MPI's type and operation. Element types that MPI 3 lacks get a derived type and user-defined
/// operations, which are made at their first use and kept until the process ends.
MPI_Datatype datatype(ElementType type);
MPI_Op operation(ElementType type, Reduction reduction);

using Request = MPI_Request;

/// True when every request has completed; never blocks. Completed requests become null.
bool test_all(std::span<Request> requests);

/// Waits for a request without a timeout; the caller bounds the wait (BoundedCall).
void wait(Request request);

/// Lets MPI make progress on the operations under way. MPI makes progress only within its calls.
void make_progress();

/// MPI's own name and version: "Open MPI v4.1.4, ...".
std::string library();

/// A group of ranks with its own message space. Counts are elements; each rank passes the same count. MPI 3
/// counts with int: an operation whose buffer has more than 2^31 - 1 elements, summed over all ranks, throws
/// UserError.
class Comm {
  public:
    static Comm world();  // COLLECTIVE: all ranks, a message space apart from MPI_COMM_WORLD's
    static Comm self();   // this rank alone

    Comm(Comm&& other) noexcept;
    Comm& operator=(Comm&& other) noexcept;
    ~Comm();

    int rank() const { return rank_; }
    int size() const { return size_; }

    /// COLLECTIVE: the same ranks in a new message space.
    Comm duplicate() const;

    /// COLLECTIVE: returns the number of ranks that can share memory with this rank (itself included), and
    /// this rank's number among them.
    struct NodePlace {
        int number, num_ranks;
    };
    NodePlace place_on_node() const;
    /// COLLECTIVE: whether all ranks can share memory.
    bool within_one_node() const { return place_on_node().num_ranks == size(); }

    /// COLLECTIVE over `ranks`: makes a group of these ranks. REQUIRES: `ranks` are numbers in this group,
    /// ascending, and include this rank. The call waits for the other ranks without a timeout; the caller
    /// bounds the wait (watch::HostWait).
    Comm subgroup(std::span<const int> ranks) const;

    // An operation is in place if `in` is this rank's part of `out` (all_gather, gather on the root), or if
    // `in` and `out` are the same (all others). A reduce_scatter in place leaves this rank's part at the
    // start of the buffer. A buffer that only the root sends or receives is ignored on other ranks.
    Request all_gather(void* out, const void* in, size_t count_per_rank, ElementType type) const;
    Request reduce_scatter(void* out, const void* in, size_t count_per_rank, ElementType type,
                           Reduction reduction) const;
    Request all_reduce(void* out, const void* in, size_t count, ElementType type, Reduction reduction) const;
    Request broadcast(void* buffer, size_t count, ElementType type, int root) const;
    Request all_to_all(void* out, const void* in, size_t count_per_rank, ElementType type) const;
    Request gather(void* out, const void* in, size_t count_per_rank, ElementType type, int root) const;
    Request barrier() const;
    /// A synchronous send completes only once its receiver has started to receive. Messages between two ranks
    /// with one tag keep their order.
    Request send(const void* buffer, size_t count, ElementType type, int peer, bool synchronous,
                 int tag = 0) const;
    Request receive(void* buffer, size_t count, ElementType type, int peer, int tag = 0) const;

  private:
    explicit Comm(MPI_Comm handle);

    int int_count_per_rank(size_t count) const;

    template <class Call, class... Args>
    Request start(const char* name, Call call, Args... args) const;

    MPI_Comm handle_;
    int rank_ = 0, size_ = 0;
};

/// Throws RunError with the name `call` and MPI's own text, unless `status` is MPI_SUCCESS.
void check(int status, const char* call);

}  // namespace argosy::mpi
