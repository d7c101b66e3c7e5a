// Memory of the stand-in for CUDA. Allocations of whole pages that CUDA shares are files in memory, which
// other processes map, and streams write and await words of them. The program ends if such memory is freed
// while another process maps it.
#include "support/fake_memory.h"

#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "cuda/peer_memory.h"
#include "support/fake_gpus.h"

namespace argosy::testing {
namespace {

constexpr size_t kTailBytes = 4096;  // behind shared memory: how many processes map it

struct Memory {
    size_t bytes = 0;
    int file = -1;          // of memory that other processes may map
    bool of_other = false;  // mapped here
};

/// By its begin.
std::map<const std::byte*, Memory>& memories() {
    static auto& map = *new std::map<const std::byte*, Memory>;
    return map;
}

std::recursive_mutex& memories_mutex() {
    static std::recursive_mutex mutex;
    return mutex;
}
using Lock = std::lock_guard<std::recursive_mutex>;

/// The memory that has all these bytes, or null.
const Memory* memory_of(const void* data, size_t bytes) {
    const Lock lock(memories_mutex());
    const auto* begin = static_cast<const std::byte*>(data);
    const auto next = memories().upper_bound(begin);
    if (next == memories().begin()) return nullptr;
    const auto& [first, memory] = *std::prev(next);
    return begin + bytes <= first + memory.bytes ? &memory : nullptr;
}

std::byte* mapped(int file, size_t bytes) {
    void* const data = mmap(nullptr, bytes + kTailBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

std::atomic_ref<int> num_users(std::byte* data, size_t bytes) {
    return std::atomic_ref(*reinterpret_cast<int*>(data + bytes));
}

std::byte* allocate(size_t bytes, Memory& memory) {
    memory.bytes = bytes;
    if (bytes == 0 || bytes % cuda::kSharedPageBytes != 0) {
        constexpr size_t kAlignment = 256;
        auto* const data = static_cast<std::byte*>(
            std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment));
        std::memset(data, 0xAB, bytes);
        return data;
    }
    memory.file = memfd_create("fake-gpu", MFD_CLOEXEC);
    if (memory.file < 0 || ftruncate(memory.file, static_cast<off_t>(bytes + kTailBytes)) != 0)
        return nullptr;
    return mapped(memory.file, bytes);
}

struct Handle {
    int process, file;
    size_t bytes;
};
static_assert(sizeof(Handle) <= sizeof(cudaIpcMemHandle_t));

bool is_word(CUdeviceptr address, bool own) {
    const Memory* const memory = memory_of(reinterpret_cast<const void*>(address), sizeof(uint32_t));
    return memory && address % sizeof(uint32_t) == 0 && !(own && memory->of_other);
}

std::atomic_ref<uint32_t> word_at(CUdeviceptr address) {
    return std::atomic_ref(*reinterpret_cast<uint32_t*>(address));
}

CUresult write_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
    if (!fake_gpus().has_stream_values) return CUDA_ERROR_NOT_SUPPORTED;
    if (!is_word(address, /*own=*/false) || flags != CU_STREAM_WRITE_VALUE_DEFAULT)
        return CUDA_ERROR_INVALID_VALUE;
    enqueue(
        stream, [=] { word_at(address).store(value, std::memory_order_release); }, [] { return true; });
    return CUDA_SUCCESS;
}

CUresult await_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
    if (!fake_gpus().has_stream_values) return CUDA_ERROR_NOT_SUPPORTED;
    if (!is_word(address, /*own=*/true) || flags != (CU_STREAM_WAIT_VALUE_GEQ | CU_STREAM_WAIT_VALUE_FLUSH))
        return CUDA_ERROR_INVALID_VALUE;
    enqueue(
        stream, [] {},
        [=] { return static_cast<int32_t>(word_at(address).load(std::memory_order_acquire) - value) >= 0; });
    return CUDA_SUCCESS;
}

}  // namespace

bool is_on_device(const void* data, size_t bytes) {
    return fake_gpus().shares_memory || memory_of(data, bytes) != nullptr;
}

bool is_mapped(const void* data) {
    const Memory* const memory = memory_of(data, 0);
    return memory && memory->of_other;
}

void copy_late(cudaStream_t stream, std::function<void()> copy) {
    ++fake_gpus().num_copies_to_peers;
    const auto start = std::make_shared<double>();
    enqueue(
        stream, [start] { *start = seconds_now(); },
        [start, copy = std::move(copy)] {
            if (seconds_now() - *start < fake_gpus().seconds_of_copy_to_peer) return false;
            copy();
            return true;
        });
}

}  // namespace argosy::testing

using namespace argosy;
using namespace argosy::testing;  // C functions have no namespace of their own

/// Its devices can flush remote writes.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int /*device*/) {
    if (which != cudaDevAttrCanFlushRemoteWrites) return returned(cudaErrorInvalidValue);
    *value = 1;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void** data, size_t bytes) {
    if (bytes > fake_gpus().free_bytes) return returned(cudaErrorMemoryAllocation);
    const Lock lock(memories_mutex());
    Memory memory;
    std::byte* const begin = allocate(bytes, memory);
    if (!begin) return returned(cudaErrorMemoryAllocation);
    memories()[begin] = memory;
    *data = begin;
    return cudaSuccess;
}

cudaError_t cudaFree(void* data) {
    const Lock lock(memories_mutex());
    const auto found = memories().find(static_cast<std::byte*>(data));
    if (found == memories().end() || found->second.of_other) return returned(cudaErrorInvalidValue);
    const Memory memory = found->second;
    memories().erase(found);
    if (memory.file < 0) {
        std::free(data);
        return cudaSuccess;
    }
    if (num_users(static_cast<std::byte*>(data), memory.bytes) != 0) {
        std::fputs("fake: memory is freed that another process maps\n", stderr);
        std::abort();
    }
    munmap(data, memory.bytes + kTailBytes);
    close(memory.file);
    return cudaSuccess;
}

// A thread that records a graph may not call this.
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned /*flags*/) {
    if (fake_gpus().captures != 0) return returned(cudaErrorStreamCaptureUnsupported);
    *data = std::malloc(bytes);
    std::memset(*data, 0xAB, bytes);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void* data) {
    std::free(data);
    return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* data) {
    const Lock lock(memories_mutex());
    const auto found = memories().find(static_cast<std::byte*>(data));
    if (found == memories().end() || found->second.file < 0) return returned(cudaErrorInvalidValue);
    const Handle made{getpid(), found->second.file, found->second.bytes};
    std::memcpy(handle, &made, sizeof(made));
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void** data, cudaIpcMemHandle_t handle, unsigned flags) {
    Handle of;
    std::memcpy(&of, &handle, sizeof(of));
    if (flags != cudaIpcMemLazyEnablePeerAccess || of.process == getpid())
        return returned(cudaErrorInvalidValue);
    if (!fake_gpus().maps_memory) return returned(cudaErrorMapBufferObjectFailed);
    const std::string path = "/proc/" + std::to_string(of.process) + "/fd/" + std::to_string(of.file);
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    std::byte* const begin = file < 0 ? nullptr : mapped(file, of.bytes);
    if (file >= 0) close(file);
    if (!begin) return returned(cudaErrorMapBufferObjectFailed);
    ++num_users(begin, of.bytes);
    const Lock lock(memories_mutex());
    memories()[begin] = {.bytes = of.bytes, .of_other = true};
    *data = begin;
    return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void* data) {
    const Lock lock(memories_mutex());
    const auto found = memories().find(static_cast<std::byte*>(data));
    if (found == memories().end() || !found->second.of_other) return returned(cudaErrorInvalidValue);
    --num_users(static_cast<std::byte*>(data), found->second.bytes);
    munmap(data, found->second.bytes + kTailBytes);
    memories().erase(found);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* bus_id) {
    char own[32] = {};
    for (int number = 0; number < fake_gpus().num_devices; ++number) {
        cudaDeviceGetPCIBusId(own, sizeof(own), number);
        if (std::string_view(own) != bus_id) continue;
        *device = number;
        return cudaSuccess;
    }
    return returned(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceCanAccessPeer(int* can_access, int device, int peer) {
    *can_access = fake_gpus().reaches_peers && device != peer;
    return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned /*version*/,
                                             unsigned long long /*flags*/,
                                             cudaDriverEntryPointQueryResult* found) {
    const std::string_view wanted = name;
    *function = wanted == "cuStreamWriteValue32"  ? reinterpret_cast<void*>(&write_value)
                : wanted == "cuStreamWaitValue32" ? reinterpret_cast<void*>(&await_value)
                                                  : nullptr;
    *found = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
