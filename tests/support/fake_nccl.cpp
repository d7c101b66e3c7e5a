#include <fcntl.h>
#include <mpi.h>
#include <nccl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/element.h"
#include "mpi/element.h"
#include "support/fake_gpus.h"

using argosy::bench::ElementType;
using argosy::testing::enqueue;
using argosy::testing::fake_gpus;
using argosy::testing::is_on_device;

namespace {

/// Where the ranks of a communicator meet, without MPI: a rank that never comes must not keep MPI from
/// others.
struct MeetingPoint {
    static constexpr int kMostRanks = 64;
    std::atomic<int> num_arrived;
    int world_ranks[kMostRanks];

    static MeetingPoint* at(const std::string& name, int flags) {
        const int file = shm_open(name.c_str(), flags, 0600);
        if (file < 0 || ftruncate(file, sizeof(MeetingPoint)) != 0) return nullptr;
        void* const memory = mmap(nullptr, sizeof(MeetingPoint), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        return static_cast<MeetingPoint*>(memory);
    }
};

/// Removes the names that are left when the process ends.
struct Names {
    std::vector<std::string> all;
    ~Names() {
        for (const std::string& name : all) shm_unlink(name.c_str());
    }
};

/// Opened where NCCL opens it: at the first communicator.
FILE* log_file() {
    static FILE* const file = [] {
        const char* const level = std::getenv("NCCL_DEBUG");
        const char* const path = std::getenv("NCCL_DEBUG_FILE");
        FILE* opened = level && std::string(level) == "INFO" && path ? std::fopen(path, "w") : nullptr;
        if (opened)
            std::fputs("fake:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>\n",
                       opened);
        return opened;
    }();
    return file;
}

std::string last_error;

}  // namespace

struct ncclComm {
    MPI_Comm ranks = MPI_COMM_NULL;
    int rank = 0, size = 0;
    ncclResult_t health = ncclSuccess;
    bool aborted = false, connected = false;
};

namespace {

using Communicator = std::shared_ptr<ncclComm>;

/// A handle is the address of one of these. A stream may outlive its communicator.
std::vector<Communicator>& communicators() {
    static std::vector<Communicator> all;
    return all;
}

Communicator shared(ncclComm_t handle) {
    for (const Communicator& one : communicators()) {
        if (one.get() == handle) return one;
    }
    return nullptr;
}

void forget(ncclComm_t handle) {
    std::erase_if(communicators(), [handle](const Communicator& one) { return one.get() == handle; });
}

/// A call, on its way to a stream.
struct Operation {
    Communicator communicator;
    cudaStream_t stream;
    std::function<std::vector<MPI_Request>()> start;
    std::function<void()> finish;
};

thread_local int group_depth = 0;
thread_local std::vector<Operation> group;

/// One kernel: what is launched together starts together and ends together.
void launch(std::vector<Operation> operations) {
    if (operations.empty()) return;
    struct Kernel {
        std::vector<Operation> operations;
        std::vector<MPI_Request> requests;
        bool lost;
    };
    const auto kernel = std::make_shared<Kernel>();
    kernel->operations = std::move(operations);
    const Operation& any = kernel->operations.front();
    const Communicator communicator = any.communicator;
    kernel->lost = std::exchange(fake_gpus().lose_next_operation, false);
    if (!communicator->connected && communicator->size > 1 && log_file()) {
        std::fprintf(log_file(),
                     "fake:1:2 [0] NCCL INFO 24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p "
                     "channels\n"
                     "fake:1:2 [0] NCCL INFO Channel 00/0 : %d[0] -> %d[1] via P2P/CUMEM/read\n",
                     communicator->rank, (communicator->rank + 1) % communicator->size);
        std::fflush(log_file());
    }
    communicator->connected = true;
    enqueue(
        any.stream,
        [kernel, communicator] {
            if (kernel->lost) {
                communicator->health = ncclRemoteError;
                last_error = "fake: the other side hung up";
                return;
            }
            for (const Operation& one : kernel->operations) {
                for (const MPI_Request request : one.start()) kernel->requests.push_back(request);
            }
        },
        [kernel, communicator] {
            if (communicator->aborted) return true;
            if (kernel->lost) return false;
            int done = 0;
            MPI_Testall(static_cast<int>(kernel->requests.size()), kernel->requests.data(), &done,
                        MPI_STATUSES_IGNORE);
            if (!done) return false;
            for (const Operation& one : kernel->operations) one.finish();
            return true;
        });
}

ncclResult_t submit(
    ncclComm_t handle, cudaStream_t stream, std::function<std::vector<MPI_Request>()> start,
    std::function<void()> finish = [] {}) {
    Operation operation{shared(handle), stream, std::move(start), std::move(finish)};
    if (!operation.communicator || operation.communicator->health != ncclSuccess) return ncclInvalidUsage;
    if (group_depth > 0) {
        group.push_back(std::move(operation));
    } else {
        launch({std::move(operation)});
    }
    return ncclSuccess;
}

// In the order of ncclDataType_t.
constexpr struct {
    argosy::mpi::Type mpi;
    ElementType element;
} kTypes[] = {
    {argosy::mpi::Type::Int8, ElementType::Int8},
    {argosy::mpi::Type::UInt8, ElementType::UInt8},
    {argosy::mpi::Type::Int32, ElementType::Int32},
    {argosy::mpi::Type::UInt32, ElementType::UInt32},
    {argosy::mpi::Type::Int64, ElementType::Int64},
    {argosy::mpi::Type::UInt64, ElementType::UInt64},
    {argosy::mpi::Type::Float16, ElementType::Half},
    {argosy::mpi::Type::Float32, ElementType::Float},
    {argosy::mpi::Type::Float64, ElementType::Double},
    {argosy::mpi::Type::BFloat16, ElementType::BFloat16},
    {argosy::mpi::Type::Float8E4M3, ElementType::Float8E4M3},
    {argosy::mpi::Type::Float8E5M2, ElementType::Float8E5M2},
};

MPI_Datatype datatype(ncclDataType_t type) { return argosy::mpi::datatype(kTypes[type].mpi); }
size_t bytes_of(ncclDataType_t type, size_t count) {
    return count * argosy::bench::size_bytes(kTypes[type].element);
}

MPI_Op operation(ncclDataType_t type, ncclRedOp_t op) {
    using argosy::mpi::Reduction;
    const Reduction reduction = op == ncclProd  ? Reduction::Product
                                : op == ncclMin ? Reduction::Min
                                : op == ncclMax ? Reduction::Max
                                                : Reduction::Sum;
    return argosy::mpi::operation(kTypes[type].mpi, reduction);
}

/// Input and output of a reduction in memory of the fake's own: MPI has other rules for what lies in place,
/// and an average changes the input first, or the output last.
struct Reduced {
    std::vector<std::byte> in, out;

    Reduced(const void* from, size_t count_in, size_t count_out, ncclDataType_t type, ncclRedOp_t op,
            int size)
        : in(bytes_of(type, count_in)), out(bytes_of(type, count_out)) {
        std::memcpy(in.data(), from, in.size());
        const ElementType element = kTypes[type].element;
        if (op != ncclAvg || argosy::bench::is_whole(element)) return;
        const size_t width = bytes_of(type, 1);
        const uint64_t share_bits = argosy::bench::bits_of(1.0 / size, element);
        const double share =
            argosy::bench::value_of(reinterpret_cast<const std::byte*>(&share_bits), element);
        for (size_t at = 0; at < in.size(); at += width) {
            const uint64_t scaled =
                argosy::bench::bits_of(argosy::bench::value_of(&in[at], element) * share, element);
            std::memcpy(&in[at], &scaled, width);
        }
    }

    void give(void* to, ncclDataType_t type, ncclRedOp_t op, int size) {
        const ElementType element = kTypes[type].element;
        if (op == ncclAvg && argosy::bench::is_whole(element)) argosy::bench::divide(out, element, size);
        std::memcpy(to, out.data(), out.size());
    }
};

template <class Start>
ncclResult_t reduce(const void* in, void* out, size_t count_in, size_t count_out, ncclDataType_t type,
                    ncclRedOp_t op, bool has_result, ncclComm_t comm, cudaStream_t stream, Start start) {
    if (!is_on_device(in, bytes_of(type, count_in))) return ncclInvalidArgument;
    if (has_result && !is_on_device(out, bytes_of(type, count_out))) return ncclInvalidArgument;
    const auto data = std::make_shared<std::unique_ptr<Reduced>>();
    return submit(
        comm, stream,
        [=] {
            *data = std::make_unique<Reduced>(in, count_in, count_out, type, op, comm->size);
            MPI_Request request;
            start(**data, &request);
            return std::vector{request};
        },
        [=] {
            if (has_result) (*data)->give(out, type, op, comm->size);
        });
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t status) {
    return status == ncclRemoteError ? "remote process exited or there was a network error" : "an error";
}

const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    static Names names;
    *id = {};
    std::snprintf(id->internal, sizeof(id->internal), "/argosy-fake-nccl-%d-%zu", getpid(), names.all.size());
    names.all.emplace_back(id->internal);
    return MeetingPoint::at(id->internal, O_CREAT | O_RDWR) ? ncclSuccess : ncclSystemError;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
    log_file();
    MeetingPoint* const meeting = MeetingPoint::at(id.internal, O_RDWR);
    if (!meeting) return ncclSystemError;
    MPI_Comm_rank(MPI_COMM_WORLD, &meeting->world_ranks[rank]);
    ++meeting->num_arrived;
    while (meeting->num_arrived < size) std::this_thread::sleep_for(std::chrono::microseconds(50));

    MPI_Group world, members;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, size, meeting->world_ranks, &members);
    const auto made = std::make_shared<ncclComm>();
    MPI_Comm_create_group(MPI_COMM_WORLD, members, /*tag=*/0, &made->ranks);
    made->rank = rank;
    made->size = size;
    communicators().push_back(made);
    *comm = made.get();
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    forget(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    comm->aborted = true;
    forget(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* found) {
    *found = comm->health;
    return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
    ++group_depth;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
    if (--group_depth == 0) launch(std::exchange(group, {}));
    return ncclSuccess;
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
    const size_t bytes = bytes_of(type, count);
    if (!is_on_device(in, bytes) || !is_on_device(out, bytes * comm->size)) return ncclInvalidArgument;
    return submit(comm, stream, [=] {
        MPI_Request request;
        const bool in_place = in == static_cast<std::byte*>(out) + bytes * comm->rank;
        MPI_Iallgather(in_place ? MPI_IN_PLACE : in, static_cast<int>(count), datatype(type), out,
                       static_cast<int>(count), datatype(type), comm->ranks, &request);
        return std::vector{request};
    });
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
    return reduce(in, out, count, count, type, op, true, comm, stream,
                  [=](Reduced& data, MPI_Request* request) {
                      MPI_Iallreduce(data.in.data(), data.out.data(), static_cast<int>(count), datatype(type),
                                     operation(type, op), comm->ranks, request);
                  });
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
    return reduce(in, out, count * comm->size, count, type, op, true, comm, stream,
                  [=](Reduced& data, MPI_Request* request) {
                      MPI_Ireduce_scatter_block(data.in.data(), data.out.data(), static_cast<int>(count),
                                                datatype(type), operation(type, op), comm->ranks, request);
                  });
}

ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
    return reduce(in, out, count, count, type, op, comm->rank == root, comm, stream,
                  [=](Reduced& data, MPI_Request* request) {
                      MPI_Ireduce(data.in.data(), data.out.data(), static_cast<int>(count), datatype(type),
                                  operation(type, op), root, comm->ranks, request);
                  });
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
    const size_t bytes = bytes_of(type, count);
    if (!is_on_device(comm->rank == root ? in : out, bytes)) return ncclInvalidArgument;
    return submit(comm, stream, [=] {
        if (comm->rank == root) std::memmove(out, in, bytes);
        MPI_Request request;
        MPI_Ibcast(out, static_cast<int>(count), datatype(type), root, comm->ranks, &request);
        return std::vector{request};
    });
}

ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    if (!is_on_device(in, bytes_of(type, count))) return ncclInvalidArgument;
    return submit(comm, stream, [=] {
        MPI_Request request;
        MPI_Issend(in, static_cast<int>(count), datatype(type), peer, /*tag=*/0, comm->ranks, &request);
        return std::vector{request};
    });
}

ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    if (!is_on_device(out, bytes_of(type, count))) return ncclInvalidArgument;
    return submit(comm, stream, [=] {
        MPI_Request request;
        MPI_Irecv(out, static_cast<int>(count), datatype(type), peer, /*tag=*/0, comm->ranks, &request);
        return std::vector{request};
    });
}
