// The C API of MPI behind move-only handles; mpi.h is included in this module alone. Buffers are raw memory:
// whoever starts an operation keeps them alive and untouched until its Request is done. One thread calls all
// of it.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <span>

namespace argosy::mpi {

enum class Type { Byte, Int64, Float32, Float64, Float16, BFloat16 };
enum class Reduction { Sum, Max };

using Request = MPI_Request;

/// True when every request has completed; never blocks. Completed requests become null.
bool test_all(std::span<Request> requests);

/// Lets MPI work on whatever is under way; it does so only within its calls.
void make_progress();

/// A group of ranks with its own message space. Counts are elements; each rank passes the same count.
class Comm {
  public:
    static Comm world();  // COLLECTIVE: all ranks, a message space apart from MPI_COMM_WORLD's
    static Comm self();   // this rank alone

    Comm(Comm&& other) noexcept;
    Comm& operator=(Comm&& other) noexcept;
    ~Comm();

    int rank() const;
    int size() const;

    /// COLLECTIVE: whether all ranks can share memory.
    bool within_one_node() const;

    /// COLLECTIVE over `ranks` (numbers in this group, ascending, this rank among them).
    Comm subgroup(std::span<const int> ranks) const;

    Request all_gather(void* out, const void* in, size_t count_per_rank, Type type) const;
    Request reduce_scatter(void* out, const void* in, size_t count_per_rank, Type type,
                           Reduction reduction) const;
    Request all_reduce(void* out, const void* in, size_t count, Type type, Reduction reduction) const;
    Request broadcast(void* buffer, size_t count, Type type, int root) const;
    Request barrier() const;
    /// A synchronous send completes only once its receiver has started to receive.
    Request send(const void* buffer, size_t count, Type type, int peer, bool synchronous) const;
    Request receive(void* buffer, size_t count, Type type, int peer) const;

  private:
    explicit Comm(MPI_Comm handle) : handle_(handle) {}
    MPI_Comm handle_;
};

}  // namespace argosy::mpi
