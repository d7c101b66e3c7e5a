// Stand-ins for CUDA's runtime and NCCL on machines without a GPU: the C functions that lib/cuda/with_cuda
// and lib/nccl/with_cuda call, done on host memory and over MPI. A suite that names module test_fake_gpus has
// those sources in place of the ones in without_cuda/.
//
// Nothing ends when it is called: what is on a stream goes on by one step each time somebody looks at any
// stream or event, on the process's first thread; other threads may look, and move nothing. Operations of
// NCCL are MPI's non-blocking ones; an average rounds where NCCL's does. Pointers that a device could not use
// are refused.
#pragma once

#include <cstddef>
#include <functional>
#include <set>

struct CUstream_st;

namespace argosy::testing {

/// What a test may change; every rank has its own.
struct FakeGpus {
    int num_devices;       // ARGOSY_FAKE_GPUS, or 8
    int first_device = 0;  // of those of the node, what the job leaves to this rank
    size_t free_bytes = size_t{1} << 40;
    bool are_taken = false;  // each by another process, for itself
    int driver_version = 13000, nccl_version = 22809;
    /// The next operation never ends, and NCCL says that another rank is lost.
    bool lose_next_operation = false;
    /// The next operation never ends, and NCCL says nothing.
    bool stall_next_operation = false;
    /// How long it takes to break off a communicator, and whether a look at the GPU fails meanwhile.
    double seconds_to_abort = 0;
    bool fails_after_abort = false;
    bool failed = false;
    /// Operations that never end do, for nothing.
    bool end_stalled = false;
    /// A look at an event by another thread than the first does not return.
    bool keeps_who_looks = false;
    /// Memory of the host is memory of every device: LibTorch's tensors then may lie on either.
    bool shares_memory = false;
    /// But of tensors that begin here the stand-in for LibTorch's half says that the host holds them.
    std::set<const void*> host_tensors = {};
    /// Not 0: every stream is part of this graph that is being recorded; what is put on one is done all the
    /// same.
    int captures = 0;
    /// How far the devices' clock, which events note, is ahead of the host's: for work that takes as long as
    /// a test says.
    double seconds_ahead = 0;
};
FakeGpus& fake_gpus();

/// Whether all these bytes are memory of a device.
bool is_on_device(const void* data, size_t bytes);

/// Puts work on a stream: `start` once everything before it is done, then `done` at each look until it is
/// true.
void enqueue(CUstream_st* stream, std::function<void()> start, std::function<bool()> done);

/// What a launch of that graph does with copies that were put on streams when it was recorded; of the rest
/// nothing is launched again.
void copy_again(int graph, CUstream_st* stream);

/// From now on everything that is put on the stream ends before the host goes on, as what LibTorch computes
/// on the CPU beside it does.
void make_waiting(CUstream_st* stream, bool waits = true);

}  // namespace argosy::testing
