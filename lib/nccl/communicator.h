// NCCL's C API behind a move-only handle. What wraps it is in real/; a build without it takes none/, where
// the version is 0 and everything else throws UserError. NCCL's header is included in real/ alone.
//
// An operation is put on a stream and ends when the stream has done it; until then its buffers, memory of the
// device that the communicator was made on, must stay. A call returns once the operation is on its stream.
// What a rank does for the first time connects it to others, and such a call, like making a communicator,
// waits for them without a limit of time: where one is needed, it comes from a thread that can be left
// behind.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "base/element_type.h"
#include "base/error.h"
#include "cuda/stream.h"

struct ncclComm;  // NCCL's own name of what its handle points at

namespace argosy::nccl {

/// As NCCL counts, 22809 for 2.28.9; 0 where there is none.
int version();
/// "2.28.9".
std::string version_text();

/// The first under which several communicators may work at the same time.
inline constexpr int kOldestVersion = 22600;

/// Settings under which several communicators may work at the same time (from kOldestVersion on), and
/// operations be part of CUDA's graphs, where the environment has none of its own. To be called before
/// anything else here, while no other thread reads the environment.
void prepare_for_graphs();

/// What went wrong is another rank's: it ended, or gave up what it waited for.
class PeerError : public RunError {
  public:
    using RunError::RunError;
};

/// What ranks find each other by: one makes it, and the others get it by other means.
using UniqueId = std::array<std::byte, 128>;
UniqueId make_unique_id();

/// An average multiplies numbers by 1/n, rounded to their type, before they are added up; whole numbers are
/// divided afterwards, towards zero.
enum class Reduction { Sum, Product, Min, Max, Average };

/// Launches what `calls` calls of NCCL as one. Sends and receives that wait for each other belong into one.
void launch_together(const std::function<void()>& calls);

/// Counts are elements; each rank passes the same. In place: `in` is this rank's part of `out` (all_gather,
/// gather), `out` this rank's part of `in` (reduce_scatter, scatter), or the two are the same (all_reduce,
/// reduce, broadcast). all_to_all has no form in place.
class Communicator {
  public:
    /// COLLECTIVE over all that have the id; on this thread's device.
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

    // Groups of sends and receives, as NCCL's own calls of 2.28 are, which older ones have not.
    void all_to_all(void* out, const void* in, size_t count_per_rank, ElementType type,
                    const cuda::Stream&) const;
    void gather(void* out, const void* in, size_t count_per_rank, ElementType type, int root,
                const cuda::Stream& stream) const;
    void scatter(void* out, const void* in, size_t count_per_rank, ElementType type, int root,
                 const cuda::Stream& stream) const;

    /// Throws RunError for what went wrong since, which shows in no call: a peer that died, a broken network.
    void require_health() const;

    /// Ends what is under way on this rank, and the communicator with it.
    void abort();

  private:
    struct Destroy {
        void operator()(ncclComm* handle) const;
    };
    std::unique_ptr<ncclComm, Destroy> handle_;
    int rank_, size_;
};

}  // namespace argosy::nccl
