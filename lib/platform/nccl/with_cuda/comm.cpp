#include "nccl/comm.h"

#include <nccl.h>

#include <cstring>
#include <iterator>
#include <thread>
#include <utility>

#include "base/error.h"

namespace argosy::nccl {
namespace {

// NCCL's types and operations in the order of ElementType and Reduction.
constexpr ncclDataType_t kTypes[] = {ncclInt8,    ncclUint8,    ncclInt32,      ncclUint32,
                                     ncclInt64,   ncclUint64,   ncclFloat16,    ncclFloat32,
                                     ncclFloat64, ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2};
static_assert(std::size(kTypes) == static_cast<size_t>(ElementType::UInt16));  // which NCCL lacks
constexpr ncclRedOp_t kReductions[] = {ncclSum, ncclMax};

ncclDataType_t datatype(ElementType type) { return kTypes[static_cast<int>(type)]; }
ncclRedOp_t operation(Reduction reduction) { return kReductions[static_cast<int>(reduction)]; }

std::byte* part(void* buffer, int rank, size_t count, ElementType type) {
    return static_cast<std::byte*>(buffer) + static_cast<size_t>(rank) * count * size_bytes(type);
}
const std::byte* part(const void* buffer, int rank, size_t count, ElementType type) {
    return part(const_cast<void*>(buffer), rank, count, type);
}

/// Advice on an error, for its message.
const char* remedy(ncclResult_t status) {
    switch (status) {
        case ncclUnhandledCudaError:
            return "a CUDA call within NCCL failed: too little memory, or a GPU or driver at fault";
        case ncclSystemError:
            return "a system call failed: check that the interface of NCCL_SOCKET_IFNAME is up, that "
                   "`ulimit -l` is unlimited and that /dev/shm has room";
        case ncclRemoteError:
            return "another rank ended, or its network connection broke: its own message, if any, says why";
        case ncclInvalidUsage:
            return "every rank needs a GPU of its own, and the same calls in the same order";
        default:
            return "set NCCL_DEBUG=WARN for details";
    }
}

/// Throws RunError with the name `call` and NCCL's own text, unless `status` is ncclSuccess. Throws PeerError
/// if another rank caused the failure.
void check(ncclResult_t status, const char* call) {
    if (status == ncclSuccess) return;
    const std::string last = ncclGetLastError(nullptr);
    const std::string text = fmt::format("{} failed: {}{}{}; {}", call, ncclGetErrorString(status),
                                         last.empty() ? "" : ": ", last, remedy(status));
    if (status == ncclRemoteError) throw PeerError("{}", text);
    throw RunError("{}", text);
}

}  // namespace

int version() {
    int version = 0;
    check(ncclGetVersion(&version), "ncclGetVersion");
    return version;
}

UniqueId make_unique_id() {
    ncclUniqueId id;
    check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    UniqueId bytes;
    static_assert(sizeof(id) == sizeof(bytes));
    std::memcpy(bytes.data(), &id, sizeof(id));
    return bytes;
}

void launch_together(const std::function<void()>& calls) {
    check(ncclGroupStart(), "ncclGroupStart");
    try {
        calls();
    } catch (...) {
        ncclGroupEnd();  // launches nothing if a call has failed
        throw;
    }
    check(ncclGroupEnd(), "ncclGroupEnd");
}

Comm::Comm(const UniqueId& id, int size, int rank, int max_channels, bool copy_engines)
    : rank_(rank), size_(size) {
    ncclUniqueId nccl_id;
    std::memcpy(&nccl_id, id.data(), sizeof(nccl_id));
    ncclComm_t handle = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (max_channels > 0) config.maxCTAs = max_channels;
    if (copy_engines) config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
    check(ncclCommInitRankConfig(&handle, size, nccl_id, rank, &config), "ncclCommInitRankConfig");
    handle_.reset(handle);
}

void Comm::all_gather(void* out, const void* in, size_t count_per_rank, ElementType type,
                      const cuda::Stream& stream) const {
    check(ncclAllGather(in, out, count_per_rank, datatype(type), handle_.get(), stream.handle()),
          "ncclAllGather");
}

void Comm::all_reduce(void* out, const void* in, size_t count, ElementType type, Reduction reduction,
                      const cuda::Stream& stream) const {
    check(ncclAllReduce(in, out, count, datatype(type), operation(reduction), handle_.get(), stream.handle()),
          "ncclAllReduce");
}

void Comm::reduce_scatter(void* out, const void* in, size_t count_per_rank, ElementType type,
                          Reduction reduction, const cuda::Stream& stream) const {
    check(ncclReduceScatter(in, out, count_per_rank, datatype(type), operation(reduction), handle_.get(),
                            stream.handle()),
          "ncclReduceScatter");
}

void Comm::broadcast(void* out, const void* in, size_t count, ElementType type, int root,
                     const cuda::Stream& stream) const {
    check(ncclBroadcast(in, out, count, datatype(type), root, handle_.get(), stream.handle()),
          "ncclBroadcast");
}

void Comm::send(const void* in, size_t count, ElementType type, int peer, const cuda::Stream& stream) const {
    check(ncclSend(in, count, datatype(type), peer, handle_.get(), stream.handle()), "ncclSend");
}

void Comm::receive(void* out, size_t count, ElementType type, int peer, const cuda::Stream& stream) const {
    check(ncclRecv(out, count, datatype(type), peer, handle_.get(), stream.handle()), "ncclRecv");
}

void Comm::all_to_all(void* out, const void* in, size_t count_per_rank, ElementType type,
                      const cuda::Stream& stream) const {
    launch_together([&] {
        for (int peer = 0; peer < size_; ++peer) {
            send(part(in, peer, count_per_rank, type), count_per_rank, type, peer, stream);
            receive(part(out, peer, count_per_rank, type), count_per_rank, type, peer, stream);
        }
    });
}

void Comm::require_health() const {
    ncclResult_t found = ncclSuccess;
    check(ncclCommGetAsyncError(handle_.get(), &found), "ncclCommGetAsyncError");
    check(found, "an operation of NCCL");
}

std::future<void> Comm::abort() {
    std::promise<void> done;
    std::future<void> future = done.get_future();
    if (!handle_) {
        done.set_value();
        return future;
    }
    std::thread([handle = handle_.release(), done = std::move(done)]() mutable {
        ncclCommAbort(handle);
        done.set_value();
    }).detach();
    return future;
}

void Comm::Destroy::operator()(ncclComm* handle) const { ncclCommDestroy(handle); }

RegisteredMemory::RegisteredMemory(const Comm& comm, int64_t num_bytes)
    : comm_(&comm), num_bytes_(num_bytes) {
    if (version() < kMinVersionForRegistering) {
        throw UserError(
            "comm.registered_memory needs NCCL {} or newer, but this is {}: load a newer one, or remove the "
            "key",
            version_text(kMinVersionForRegistering), version_text());
    }
    void* memory = nullptr;
    if (ncclMemAlloc(&memory, static_cast<size_t>(num_bytes)) != ncclSuccess) {
        throw RunError(
            "NCCL found no {} bytes of GPU memory to register: {}; set comm.registered_memory = false, or "
            "let the "
            "model take less memory",
            num_bytes, ncclGetLastError(nullptr));
    }
    data_ = static_cast<std::byte*>(memory);
    try {
        check(ncclCommWindowRegister(comm.handle_.get(), memory, static_cast<size_t>(num_bytes), &window_,
                                     NCCL_WIN_COLL_SYMMETRIC),
              "ncclCommWindowRegister");
    } catch (...) {
        ncclMemFree(memory);
        throw;
    }
}

RegisteredMemory::RegisteredMemory(RegisteredMemory&& other) noexcept
    : comm_(other.comm_),
      data_(std::exchange(other.data_, nullptr)),
      num_bytes_(other.num_bytes_),
      window_(std::exchange(other.window_, nullptr)) {}

RegisteredMemory::~RegisteredMemory() {
    ncclComm* const handle = comm_->handle_.get();
    if (window_ != nullptr && handle != nullptr) ncclCommWindowDeregister(handle, window_);
    if (data_ != nullptr && handle != nullptr)
        ncclMemFree(data_);  // an aborted operation may still write to it
}

}  // namespace argosy::nccl
