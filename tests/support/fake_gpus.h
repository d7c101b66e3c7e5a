// Stand-ins for CUDA's runtime and NCCL on machines without a GPU: the C functions that
// lib/platform/cuda/with_cuda and lib/platform/nccl/with_cuda call, on host memory and over MPI. A suite that
// names room test_fake_gpus compiles those sources instead of the ones in without_cuda/. All work is
// asynchronous: streams advance by one step each time the process's first thread queries any stream or event;
// queries of other threads advance nothing. Operations of NCCL are MPI's non-blocking ones. Pointers that a
// device could not use are refused.
#pragma once

#include <cstddef>
#include <functional>
#include <set>

struct CUstream_st;

namespace argosy::testing {

/// Settings that a test may change; every rank has its own. ARGOSY_FAKE_NAME is the name of
/// the devices. If ARGOSY_FAKE_CONNECTIONS is set and is not what
/// CUDA_DEVICE_MAX_CONNECTIONS was when the process started CUDA, CUDA fails to count devices.
struct FakeGpus {
    int num_devices;       // ARGOSY_FAKE_GPUS, or 8; negative: CUDA fails to count them
    int capability = 90;   // ARGOSY_FAKE_CAPABILITY, or 90 for 9.0
    int first_device = 0;  // of the node's devices, those that the job gives this rank
    size_t free_bytes = size_t{1} << 40;
    bool are_taken = false;  // each visible to another process only
    int driver_version = 13000;
    int nccl_version = 22809;  // ARGOSY_FAKE_NCCL_VERSION, or 22809 for 2.28.9
    /// The next operation never ends, and NCCL reports that another rank is lost.
    bool lose_next_operation = false;
    /// The next operation never ends, and NCCL reports nothing.
    bool stall_next_operation = false;
    /// Duration of aborting a communicator, and whether queries of the GPU fail meanwhile.
    double seconds_to_abort = 0;
    bool fails_after_abort = false;
    bool failed = false;
    /// Lets operations that would never end complete without doing anything.
    bool end_stalled = false;
    /// A query of an event by another thread than the first one does not return.
    bool blocks_other_threads = false;
    /// A stream with copies to the host goes on only if something waits for it or for one of its events.
    bool late_copies = false;
    /// Host memory counts as memory of every device, so LibTorch's tensors may be on either.
    bool shares_memory = false;
    /// Tensors that begin in this range are on the host according to the stand-in for LibTorch's CUDA part.
    std::set<const void*> host_tensors = {};
    /// If not 0, every stream is part of the graph with this number, which is being recorded; work put on a
    /// stream is also executed.
    int captures = 0;
    /// The devices' clock, which events record, is this far ahead of the host's: for work whose duration a
    /// test sets.
    double seconds_ahead = 0;
    /// Whether GPUs reach each other's memory. All-gathers by copy engines, and reduce-scatters of registered
    /// memory, so far.
    bool reaches_peers = true;
    int num_gathers_by_copy_engines = 0, num_registered_reductions = 0;
    /// Whether CUDA maps memory of other processes, and the driver lets streams write and await values.
    bool maps_memory = true, has_stream_values = true;
    /// Copies to memory of other processes read and write at the end of this time. Such copies so far.
    double seconds_of_copy_to_peer = 1e-3;
    int num_copies_to_peers = 0;
    /// Called when this rank makes a communicator of NCCL, which takes this much memory.
    std::function<void()> made_communicator = {};
    size_t communicator_bytes = size_t{64} << 20;
};
FakeGpus& fake_gpus();

/// Whether all these bytes are memory of a device.
bool is_on_device(const void* data, size_t bytes);

/// Puts work on a stream: `start` runs once everything before it is done, then `done` runs at each query
/// until it is true.
void enqueue(CUstream_st* stream, std::function<void()> start, std::function<bool()> done);

/// Repeats the copies that were put on streams while that graph was recorded; other recorded work is not
/// repeated.
void copy_again(int graph, CUstream_st* stream);

/// From now on, or until now, graph number `graph` exists. An abort of a communicator whose operations the
/// graph contains waits until the graph is destroyed.
void keep_graph(int graph);
void destroy_graph(int graph);

/// From now on all work put on the stream ends before the host continues, like LibTorch's own operations on
/// the CPU.
void make_waiting(CUstream_st* stream, bool waits = true);

}  // namespace argosy::testing
