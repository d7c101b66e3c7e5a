// NCCL's C API behind a move-only handle. The folder with_cuda/ wraps NCCL; a build without NCCL uses
// without_cuda/, where the version is 0 and everything else throws UserError. Only with_cuda/ includes
// NCCL's header. A call puts its operation on a stream and returns; the operation ends when the stream
// has done it. The buffers, memory of the communicator's device, must stay valid and unchanged until then.
// A rank's first operation of a kind connects it to other ranks. This first call and the constructor wait
// for the other ranks without a timeout; a caller that needs a timeout makes the call on a thread that it
// can abandon.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "base/element_type.h"
#include "base/error.h"
#include "cuda/stream.h"

struct ncclComm;  // the struct behind NCCL's handle

namespace argosy::nccl {

/// NCCL's version number: 22809 for 2.28.9; 0 without NCCL.
int version();
/// "2.28.9".
std::string version_text();

/// The first version in which several communicators may run at the same time.
inline constexpr int kOldestVersion = 22600;

/// Sets NCCL's environment variables such that several communicators may run at the same time (from
/// kOldestVersion on), and operations may be part of CUDA graphs. Variables that are already set stay.
/// REQUIRES: called before anything else here, while no other thread reads the environment.
void prepare_for_graphs();

/// An error caused by another rank, which has ended or aborted its operation.
class PeerError : public RunError {
  public:
    using RunError::RunError;
};

/// Identifies a new communicator. One rank makes the id; the caller passes it to the other ranks.
using UniqueId = std::array<std::byte, 128>;
UniqueId make_unique_id();

/// Average multiplies floating-point numbers by 1/n, rounded to their type, before the sum; integers are
/// divided after the sum, towards zero.
enum class Reduction { Sum, Product, Min, Max, Average };

/// Runs `calls`, and launches all NCCL operations in it as one group. Sends and receives that wait for each
/// other must be in one group.
void launch_together(const std::function<void()>& calls);

/// Counts are elements; each rank passes the same. In place: `in` is this rank's part of `out` (all_gather,
/// gather), `out` this rank's part of `in` (reduce_scatter, scatter), or the two are the same (all_reduce,
/// reduce, broadcast). all_to_all has no form in place.
class Communicator {
  public:
    /// COLLECTIVE over all ranks that have the id. Uses this thread's device.
    Communicator(const UniqueId& id, int size, int rank);

    int rank() const { return rank_; }
    int size() const { return size_; }

    void all_gather(void* out, const void* in, size_t count_per_rank, ElementType type,
                    const cuda::Stream&) const;
    void all_reduce(void* out, const void* in, size_t count, ElementType type, Reduction reduction,
                    const cuda::Stream& stream) const;
    void reduce_scatter(void* out, const void* in, size_t count_per_rank, ElementType type,
                        Reduction reduction, const cuda::Stream& stream) const;
    void reduce(void* out, const void* in, size_t count, ElementType type, Reduction reduction, int root,
                const cuda::Stream& stream) const;
    void broadcast(void* out, const void* in, size_t count, ElementType type, int root,
                   const cuda::Stream&) const;
    void send(const void* in, size_t count, ElementType type, int peer, const cuda::Stream& stream) const;
    void receive(void* out, size_t count, ElementType type, int peer, const cuda::Stream& stream) const;

    // These are groups of sends and receives, like NCCL's own calls in 2.28, which older versions lack.
    void all_to_all(void* out, const void* in, size_t count_per_rank, ElementType type,
                    const cuda::Stream&) const;
    void gather(void* out, const void* in, size_t count_per_rank, ElementType type, int root,
                const cuda::Stream& stream) const;
    void scatter(void* out, const void* in, size_t count_per_rank, ElementType type, int root,
                 const cuda::Stream& stream) const;

    /// Throws RunError if an operation has failed after its call returned: a peer died, the network broke.
    void require_health() const;

    /// Aborts the operations under way on this rank, and destroys the communicator.
    void abort();

  private:
    struct Destroy {
        void operator()(ncclComm* handle) const;
    };
    std::unique_ptr<ncclComm, Destroy> handle_;
    int rank_, size_;
};

}  // namespace argosy::nccl
