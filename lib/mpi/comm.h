// The C API of MPI behind move-only handles; only this module includes mpi.h. Buffers are raw memory: the
// caller of an operation keeps them alive and untouched until its Request is done. One thread calls
// everything here.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "mpi/element.h"

namespace argosy::mpi {

using Request = MPI_Request;

/// True when every request has completed; never blocks. Completed requests become null.
bool test_all(std::span<Request> requests);

/// Lets MPI make progress on the operations under way. MPI makes progress only within its calls.
void make_progress();

/// MPI's own name and version: "Open MPI v4.1.4, ...".
std::string library();

/// Maximum number of elements in an operation's buffer, over all ranks: MPI 3 counts with int.
inline constexpr size_t kMaxElements = 0x7FFFFFFF;

/// Blocking: an operation has ended when the call that starts it returns, and the Request is null.
enum class Calls { NonBlocking, Blocking };

/// A group of ranks with its own message space. Counts are elements; each rank passes the same count.
class Comm {
  public:
    static Comm world();  // COLLECTIVE: all ranks, a message space apart from MPI_COMM_WORLD's
    static Comm self();   // this rank alone

    Comm(Comm&& other) noexcept;
    Comm& operator=(Comm&& other) noexcept;
    ~Comm();

    int rank() const { return rank_; }
    int size() const { return size_; }

    /// COLLECTIVE: the same ranks in a new message space. Collectives of the new group use MPI's blocking
    /// calls if `calls` says so; sends and receives never do.
    Comm duplicate(Calls calls = Calls::NonBlocking) const;

    /// COLLECTIVE: this rank's number among the ranks that can share memory with it, and their count.
    struct NodePlace {
        int number, num_ranks;
    };
    NodePlace place_on_node() const;
    /// COLLECTIVE: whether all ranks can share memory.
    bool within_one_node() const { return place_on_node().num_ranks == size(); }

    /// COLLECTIVE over `ranks` (numbers in this group, ascending, this rank among them). Waits for them
    /// without a timeout: the caller bounds the call (watch::HostWait).
    Comm subgroup(std::span<const int> ranks) const;

    // In place: `in` is this rank's part of `out` (all_gather, gather on the root), `out` this rank's part of
    // `in` (scatter on the root), or the two are the same; a reduce_scatter in place leaves its part at the
    // start. A buffer that only the root sends or receives is ignored on other ranks.
    Request all_gather(void* out, const void* in, size_t count_per_rank, ElementType type) const;
    Request reduce_scatter(void* out, const void* in, size_t count_per_rank, ElementType type,
                           Reduction reduction) const;
    Request all_reduce(void* out, const void* in, size_t count, ElementType type, Reduction reduction) const;
    Request reduce(void* out, const void* in, size_t count, ElementType type, Reduction reduction,
                   int root) const;
    Request broadcast(void* buffer, size_t count, ElementType type, int root) const;
    Request all_to_all(void* out, const void* in, size_t count_per_rank, ElementType type) const;
    Request scatter(void* out, const void* in, size_t count_per_rank, ElementType type, int root) const;
    Request gather(void* out, const void* in, size_t count_per_rank, ElementType type, int root) const;
    Request barrier() const;
    /// A synchronous send completes only once its receiver has started to receive.
    Request send(const void* buffer, size_t count, ElementType type, int peer, bool synchronous) const;
    Request receive(void* buffer, size_t count, ElementType type, int peer) const;

    struct Message {
        int sender;
        std::string bytes;
    };
    /// Returns the next message of bytes that has arrived, from any rank; does not wait. REQUIRES: messages
    /// are short, so that a message has arrived completely.
    std::optional<Message> take_message() const;

  private:
    explicit Comm(MPI_Comm handle, Calls calls = Calls::NonBlocking);

    template <class Blocking, class NonBlocking, class... Args>
    Request start(const char* name, Blocking blocking, NonBlocking non_blocking, Args... args) const;

    MPI_Comm handle_;
    Calls calls_;
    int rank_ = 0, size_ = 0;
};

// Turns MPI's return codes into errors with MPI's own text.

/// Throws RunError naming `call` unless `status` is MPI_SUCCESS.
void check(int status, const char* call);

}  // namespace argosy::mpi
