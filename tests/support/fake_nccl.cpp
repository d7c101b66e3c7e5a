#include <fcntl.h>
#include <mpi.h>
#include <nccl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/element.h"
#include "mpi/comm.h"
#include "support/fake_gpus.h"
#include "support/fake_nccl.h"

using namespace argosy;  // C functions have no namespace of their own
using namespace argosy::testing;

namespace {

/// The ranks of a communicator meet here without MPI: a rank that never arrives must not block MPI for
/// others.
struct MeetingPoint {
    static constexpr int kMaxRanks = 64;
    std::atomic<int> num_arrived;
    std::atomic<bool> aborted;
    int world_ranks[kMaxRanks];

    static MeetingPoint* at(const std::string& name, int flags) {
        const int file = shm_open(name.c_str(), flags, 0600);
        if (file < 0 || ftruncate(file, sizeof(MeetingPoint)) != 0) return nullptr;
        void* const memory = mmap(nullptr, sizeof(MeetingPoint), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        return static_cast<MeetingPoint*>(memory);
    }
};

/// When the process ends, removes the names of meeting points at which not all ranks have arrived.
struct Names {
    std::vector<std::string> all;
    ~Names() {
        for (const std::string& name : all) shm_unlink(name.c_str());
    }
};

/// Opened when NCCL opens it: at the first communicator.
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

using Communicator = std::shared_ptr<ncclComm>;

/// A handle is the address of such an object. A stream may outlive its communicator.
std::vector<Communicator>& communicators() {
    static auto& all = *new std::vector<Communicator>;
    return all;
}

std::mutex& list_mutex() {
    static std::mutex mutex;
    return mutex;
}

Communicator shared(ncclComm_t handle) {
    const std::lock_guard lock(list_mutex());
    for (const Communicator& one : communicators()) {
        if (one.get() == handle) return one;
    }
    return nullptr;
}

void forget(ncclComm_t handle) {
    const std::lock_guard lock(list_mutex());
    std::erase_if(communicators(), [handle](const Communicator& one) { return one.get() == handle; });
}

std::set<int>& living_graphs() {
    static auto& all = *new std::set<int>;
    return all;
}

bool is_in_a_graph(const ncclComm& communicator) {
    const std::lock_guard lock(list_mutex());
    return std::ranges::any_of(communicator.graphs,
                               [](int graph) { return living_graphs().contains(graph); });
}

/// A call on its way to a stream.
struct Operation {
    Communicator communicator;
    cudaStream_t stream;
    std::function<MPI_Request()> start;
    std::function<void()> finish;
};

thread_local int group_depth = 0;
thread_local std::vector<Operation> group;

/// Operations that are launched together start together and end together.
struct Kernel {
    std::vector<Operation> operations;
    Communicator communicator = operations.front().communicator;
    bool lost = std::exchange(fake_gpus().lose_next_operation, false);
    bool stalled = std::exchange(fake_gpus().stall_next_operation, false);
    std::vector<MPI_Request> requests = {};

    void start() {
        if (lost) {
            communicator->health = ncclRemoteError;
            last_error = "fake: the other side hung up";
            return;
        }
        if (stalled) return;
        for (const Operation& one : operations) requests.push_back(one.start());
    }

    bool done() {
        if (communicator->aborted) return true;
        if (stalled && fake_gpus().end_stalled) return true;
        if (lost || stalled) return false;
        int all = 0;
        MPI_Testall(static_cast<int>(requests.size()), requests.data(), &all, MPI_STATUSES_IGNORE);
        if (!all) return false;
        for (const Operation& one : operations) one.finish();
        return true;
    }
};

/// NCCL's log lines, written at the first operation.
void connect(ncclComm& communicator) {
    if (std::exchange(communicator.connected, true) || communicator.size == 1 || !log_file()) return;
    std::fprintf(
        log_file(),
        "fake:1:2 [0] NCCL INFO %d coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels\n"
        "fake:1:2 [0] NCCL INFO Channel 00/0 : %d[0] -> %d[1] via P2P/CUMEM/read\n",
        communicator.max_channels ? communicator.max_channels : 24, communicator.rank,
        (communicator.rank + 1) % communicator.size);
    std::fflush(log_file());
}

/// One kernel per communicator.
void launch(std::vector<Operation> operations) {
    while (!operations.empty()) {
        const Communicator communicator = operations.front().communicator;
        const auto others =
            std::stable_partition(operations.begin(), operations.end(),
                                  [&](const Operation& one) { return one.communicator == communicator; });
        std::vector<Operation> own(operations.begin(), others);
        operations.erase(operations.begin(), others);
        const cudaStream_t stream = own.front().stream;
        const auto kernel = std::make_shared<Kernel>(Kernel{std::move(own)});
        connect(*communicator);
        communicator->stream = stream;
        ++communicator->num_under_way;
        enqueue(
            stream, [kernel] { kernel->start(); },
            [kernel] {
                if (!kernel->done()) return false;
                --kernel->communicator->num_under_way;
                return true;
            });
    }
}

// In the order of ncclDataType_t.
constexpr struct {
    ElementType mpi;
    ElementType element;
} kTypes[] = {
    {ElementType::Int8, ElementType::Int8},
    {ElementType::UInt8, ElementType::UInt8},
    {ElementType::Int32, ElementType::Int32},
    {ElementType::UInt32, ElementType::UInt32},
    {ElementType::Int64, ElementType::Int64},
    {ElementType::UInt64, ElementType::UInt64},
    {ElementType::Float16, ElementType::Float16},
    {ElementType::Float32, ElementType::Float32},
    {ElementType::Float64, ElementType::Float64},
    {ElementType::BFloat16, ElementType::BFloat16},
    {ElementType::Float8E4M3, ElementType::Float8E4M3},
    {ElementType::Float8E5M2, ElementType::Float8E5M2},
};

}  // namespace

namespace argosy::testing {

ElementType element_of(ncclDataType_t type) { return kTypes[type].element; }
MPI_Datatype datatype(ncclDataType_t type) { return mpi::datatype(kTypes[type].mpi); }
size_t bytes_of(ncclDataType_t type, size_t count) { return count * size_bytes(element_of(type)); }

MPI_Op operation(ncclDataType_t type, ncclRedOp_t op) {
    return mpi::operation(kTypes[type].mpi, op == ncclMax ? Reduction::Max : Reduction::Sum);
}

bool is_alive(ncclComm_t handle) { return shared(handle) != nullptr; }

ncclResult_t submit(ncclComm_t handle, cudaStream_t stream, std::function<MPI_Request()> start,
                    std::function<void()> finish) {
    Operation one{shared(handle), stream, std::move(start), std::move(finish)};
    if (!one.communicator) return ncclInvalidArgument;
    if (one.communicator->health != ncclSuccess) return one.communicator->health;
    if (fake_gpus().captures) {
        const std::lock_guard lock(list_mutex());
        one.communicator->graphs.insert(fake_gpus().captures);
    }
    if (group_depth > 0) {
        group.push_back(std::move(one));
    } else {
        launch({std::move(one)});
    }
    return ncclSuccess;
}

void keep_graph(int graph) {
    const std::lock_guard lock(list_mutex());
    living_graphs().insert(graph);
}

void destroy_graph(int graph) {
    const std::lock_guard lock(list_mutex());
    living_graphs().erase(graph);
}

}  // namespace argosy::testing

ncclResult_t ncclGetVersion(int* version) {
    *version = fake_gpus().nccl_version;
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
    return MeetingPoint::at(id->internal, O_CREAT | O_TRUNC | O_RDWR) ? ncclSuccess : ncclSystemError;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
    log_file();
    if (fake_gpus().made_communicator) fake_gpus().made_communicator();
    fake_gpus().free_bytes -= fake_gpus().communicator_bytes;
    MeetingPoint* const meeting = MeetingPoint::at(id.internal, O_RDWR);
    if (!meeting) return ncclSystemError;
    MPI_Comm_rank(MPI_COMM_WORLD, &meeting->world_ranks[rank]);
    ++meeting->num_arrived;
    while (meeting->num_arrived < size) std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (rank == 0) shm_unlink(id.internal);

    MPI_Group world, members;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, size, meeting->world_ranks, &members);
    const auto made = std::make_shared<ncclComm>();
    MPI_Comm_create_group(MPI_COMM_WORLD, members, /*tag=*/0, &made->ranks);
    made->rank = rank;
    if (config->maxCTAs != NCCL_CONFIG_UNDEF_INT) made->max_channels = config->maxCTAs;
    made->copy_engines = config->CTAPolicy == NCCL_CTA_POLICY_ZERO;
    made->size = size;
    made->aborted_anywhere = &meeting->aborted;
    {
        const std::lock_guard lock(list_mutex());
        communicators().push_back(made);
    }
    *comm = made.get();
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    return ncclCommInitRankConfig(comm, size, id, rank, &config);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    while (comm->num_under_way > 0) cudaStreamQuery(comm->stream);
    forget(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    if (const Communicator aborted = shared(comm)) {
        aborted->aborted = true;
        *aborted->aborted_anywhere = true;
        while (is_in_a_graph(*aborted)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    forget(comm);
    fake_gpus().failed = fake_gpus().fails_after_abort;
    std::this_thread::sleep_for(std::chrono::duration<double>(fake_gpus().seconds_to_abort));
    return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
    return cudaMalloc(memory, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* memory) {
    return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

/// All ranks register the same sizes, or none goes on.
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* memory, size_t bytes, ncclWindow_t* window, int) {
    if (!is_alive(comm) || !is_on_device(memory, bytes)) return ncclInvalidArgument;
    long extremes[] = {static_cast<long>(bytes), -static_cast<long>(bytes)};
    MPI_Allreduce(MPI_IN_PLACE, extremes, 2, MPI_LONG, MPI_MAX, comm->ranks);
    if (extremes[0] != -extremes[1]) {
        last_error = "fake: ranks register different sizes";
        return ncclInvalidUsage;
    }
    if (!fake_gpus().reaches_peers) return ncclSuccess;
    *window = static_cast<ncclWindow_t>(memory);
    comm->windows.emplace(static_cast<const std::byte*>(memory), bytes);
    return ncclSuccess;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
    comm->windows.erase(reinterpret_cast<const std::byte*>(window));
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* found) {
    if (!is_alive(comm)) return ncclInvalidArgument;
    if (*comm->aborted_anywhere && !comm->aborted) {
        last_error = "fake: the other side has aborted";
        comm->health = ncclRemoteError;
    }
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
    if (!is_alive(comm)) return ncclInvalidArgument;
    const size_t bytes = bytes_of(type, count);
    if (!is_on_device(in, bytes) || !is_on_device(out, bytes * comm->size)) return ncclInvalidArgument;
    if (comm->copy_engines && comm->is_registered(in) && comm->is_registered(out))
        ++fake_gpus().num_gathers_by_copy_engines;
    return submit(comm, stream, [=] {
        MPI_Request request;
        const bool in_place = in == static_cast<std::byte*>(out) + bytes * comm->rank;
        MPI_Iallgather(in_place ? MPI_IN_PLACE : in, static_cast<int>(count), datatype(type), out,
                       static_cast<int>(count), datatype(type), comm->ranks, &request);
        return request;
    });
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
    if (!is_alive(comm)) return ncclInvalidArgument;
    const size_t bytes = bytes_of(type, count);
    if (!is_on_device(comm->rank == root ? in : out, bytes)) return ncclInvalidArgument;
    return submit(comm, stream, [=] {
        if (comm->rank == root) std::memmove(out, in, bytes);
        MPI_Request request;
        MPI_Ibcast(out, static_cast<int>(count), datatype(type), root, comm->ranks, &request);
        return request;
    });
}

ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    if (!is_on_device(in, bytes_of(type, count))) return ncclInvalidArgument;
    return submit(comm, stream, [=] {
        MPI_Request request;
        MPI_Issend(in, static_cast<int>(count), datatype(type), peer, /*tag=*/0, comm->ranks, &request);
        return request;
    });
}

ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    if (!is_on_device(out, bytes_of(type, count))) return ncclInvalidArgument;
    return submit(comm, stream, [=] {
        MPI_Request request;
        MPI_Irecv(out, static_cast<int>(count), datatype(type), peer, /*tag=*/0, comm->ranks, &request);
        return request;
    });
}
