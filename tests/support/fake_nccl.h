// Shared parts of the two sources of NCCL's stand-in: a communicator, and how a call becomes work on a
// stream.
#pragma once

#include <mpi.h>
#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <set>

#include "bench/element.h"

struct ncclComm {
    MPI_Comm ranks = MPI_COMM_NULL;
    int rank = 0, size = 0;
    int max_channels = 0;  // 0: no limit
    std::atomic<ncclResult_t> health = ncclSuccess;
    std::atomic<bool> aborted = false;  // by any thread
    std::atomic<bool>* aborted_anywhere = nullptr;
    bool connected = false;
    int num_under_way = 0;  // on this stream
    cudaStream_t stream = nullptr;
    std::set<int> graphs = {};  // that contain its operations
    bool copy_engines = false;
    std::map<const std::byte*, size_t> windows = {};  // registered memory, by its begin

    bool is_registered(const void* data) const {
        const auto* const byte = static_cast<const std::byte*>(data);
        const auto next = windows.upper_bound(byte);
        return next != windows.begin() && byte < std::prev(next)->first + std::prev(next)->second;
    }
};

namespace argosy::testing {

ElementType element_of(ncclDataType_t type);
MPI_Datatype datatype(ncclDataType_t type);
MPI_Op operation(ncclDataType_t type, ncclRedOp_t op);
size_t bytes_of(ncclDataType_t type, size_t count);

/// Whether the handle is that of a communicator: not null, and not aborted or destroyed.
bool is_alive(ncclComm_t handle);

/// A call of NCCL, alone or as a part of its group: when the stream reaches it, `start` begins it with MPI,
/// and `finish` follows when that has ended.
ncclResult_t submit(
    ncclComm_t communicator, cudaStream_t stream, std::function<MPI_Request()> start,
    std::function<void()> finish = [] {});

}  // namespace argosy::testing
