// NCCL's C API behind a move-only handle. The folder with_cuda/ wraps NCCL, and only its sources include
// NCCL's header. A build without NCCL uses without_cuda/: there version() is 0, and no Comm can be
// made, because make_unique_id() and the constructor throw UserError.
//
// A call queues its operation on a stream and returns. The buffers, memory of the communicator's device, must
// stay valid and unchanged until the operation has ended on the stream. A rank's first operation of a kind
// connects the rank to other ranks. This first call and the constructor wait for the other ranks without a
// timeout; a caller that needs a timeout makes the call on a thread that it can abandon.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>

#include "base/element_type.h"
#include "base/error.h"
#include "cuda/stream.h"

struct ncclComm;  // the structs behind NCCL's handles
struct ncclWindow_vidmem;

namespace argosy::nccl {

/// NCCL's version number: 22809 for 2.28.9; 0 without NCCL.
int version();
/// A version of NCCL as text, such as "2.28.9".
std::string version_text(int number = version());

/// The first version in which several communicators may run at the same time.
inline constexpr int kMinVersion = 22600;

/// Whether operations of several communicators that a graph has recorded may run at the same time. Older
/// versions and drivers run them one after the other, in the order of their launches.
bool runs_recorded_at_once(int nccl_version, int driver_version);
inline constexpr int kMinVersionForGraphs = 22703, kMinDriverForGraphs = 12090;

/// Sets NCCL's environment variables so that several communicators may run at the same time (from
/// kMinVersion on), and operations may be part of CUDA graphs. Does not change variables that are already
/// set. REQUIRES: called before make_unique_id() and the first Comm, while no other thread reads the
/// environment.
void prepare_for_graphs();

/// The first version that registers memory of all ranks, and has collectives by copy engines.
inline constexpr int kMinVersionForRegistering = 22800;

/// An error caused by another rank, which has ended, aborted its operation or lost the network.
class PeerError : public RunError {
  public:
    using RunError::RunError;
};

/// Memory of a channel that receives: the buffers of NCCL's three protocols, 0.5 MiB for LL, 4.7 for LL128
/// and 4 for Simple (src/init.cc, computeBuffSizes(), and src/transport/p2p.cc, p2pRecvSetup(), of
/// v2.28.9-1), in pieces of 2 MiB. NCCL allocates them when an algorithm first connects its ranks.
inline constexpr int64_t kChannelBytes = int64_t{10} << 20;

/// The time that a caller gives Comm::abort() before it goes on.
inline constexpr std::chrono::seconds kTimeToAbort{2};

/// Identifies a new communicator. One rank makes the id; the caller passes it to the other ranks.
using UniqueId = std::array<std::byte, 128>;
UniqueId make_unique_id();

/// Runs `calls`, and launches all of its NCCL operations as one group. Sends and receives that wait for each
/// other must be in one group.
void launch_together(const std::function<void()>& calls);

/// Counts are elements; each rank passes the same count. An operation is in place if `in` is this rank's part
/// of `out` (all_gather), if `out` is this rank's part of `in` (reduce_scatter), or if `in` and `out` are the
/// same (all_reduce, broadcast). all_to_all cannot run in place.
class Comm {
  public:
    /// COLLECTIVE over the `size` ranks of the new communicator. Uses this thread's current device. It shares
    /// no resource with other communicators, so operations of both may run at the same time, and aborting one
    /// leaves the others. `max_channels` limits its channels, each of which takes an SM and memory
    /// (kChannelBytes); 0: NCCL chooses. With `copy_engines`, NCCL gathers with the GPU's copy engines in
    /// place of channels, where all ranks are in one domain of NVLink and both tensors are in
    /// RegisteredMemory.
    Comm(const UniqueId& id, int size, int rank, int max_channels = 0, bool copy_engines = false);

    int rank() const { return rank_; }
    int size() const { return size_; }

    void all_gather(void* out, const void* in, size_t count_per_rank, ElementType type,
                    const cuda::Stream&) const;
    void all_reduce(void* out, const void* in, size_t count, ElementType type, Reduction reduction,
                    const cuda::Stream& stream) const;
    void reduce_scatter(void* out, const void* in, size_t count_per_rank, ElementType type,
                        Reduction reduction, const cuda::Stream& stream) const;
    void broadcast(void* out, const void* in, size_t count, ElementType type, int root,
                   const cuda::Stream&) const;
    void send(const void* in, size_t count, ElementType type, int peer, const cuda::Stream& stream) const;
    void receive(void* out, size_t count, ElementType type, int peer, const cuda::Stream& stream) const;

    // A group of sends and receives, because NCCL has a call for it only since 2.28.
    void all_to_all(void* out, const void* in, size_t count_per_rank, ElementType type,
                    const cuda::Stream&) const;

    /// Throws RunError if an operation has failed after its call returned, because a peer ended or the
    /// network broke.
    void require_health() const;

    /// Aborts this rank's operations that have not ended, and destroys the communicator, both on a thread of
    /// its own: NCCL waits until no graph contains an operation of the communicator, and the caller may own
    /// these graphs. The future is ready when NCCL is done; its destructor does not wait. Later calls do
    /// nothing.
    std::future<void> abort();

  private:
    struct Destroy {
        void operator()(ncclComm* handle) const;
    };
    friend class RegisteredMemory;
    std::unique_ptr<ncclComm, Destroy> handle_;
    int rank_, size_;
};

/// Memory of this thread's device that is registered with a communicator: NCCL can then gather with copy
/// engines, and add in the switches of NVLink, in place of channels. REQUIRES: the communicator outlives it.
class RegisteredMemory {
  public:
    /// COLLECTIVE over the communicator: all ranks register the same number of bytes, in the same order.
    /// Waits for them without a timeout.
    RegisteredMemory(const Comm& comm, int64_t num_bytes);
    RegisteredMemory(RegisteredMemory&& other) noexcept;
    ~RegisteredMemory();

    std::byte* data() const { return data_; }
    int64_t num_bytes() const { return num_bytes_; }
    /// Whether NCCL took it: it leaves memory alone where the ranks' GPUs do not reach each other's.
    bool registered() const { return window_ != nullptr; }

  private:
    const Comm* comm_;
    std::byte* data_ = nullptr;
    int64_t num_bytes_;
    ncclWindow_vidmem* window_ = nullptr;
};

}  // namespace argosy::nccl
