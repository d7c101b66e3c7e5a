#include "cuda/peer_memory.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>

#include "base/error.h"
#include "cuda/device.h"

namespace argosy::cuda {
namespace {

using StreamValue = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
constexpr unsigned kVersion = 11070;  // the first CUDA in which every driver has these operations

StreamValue driver_function(const char* name) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion(name, &function, kVersion, cudaEnableDefault, &found);
    if (status != cudaSuccess) cudaGetLastError();
    return status == cudaSuccess && found == cudaDriverEntryPointSuccess
               ? reinterpret_cast<StreamValue>(function)
               : nullptr;
}

void call(StreamValue function, const char* name, const std::byte* word, uint32_t value,
          const StreamView& stream, unsigned flags) {
    if (function == nullptr) throw RunError("the driver has no {}", name);
    const CUresult status = function(stream.handle(), reinterpret_cast<CUdeviceptr>(word), value, flags);
    if (status != CUDA_SUCCESS) throw RunError("{} failed with error {}", name, static_cast<int>(status));
}

/// Where writes of other devices may be visible in another order than they arrive, a wait has to flush them.
unsigned flush_flag() {
    int flushes = 0;
    check(cudaDeviceGetAttribute(&flushes, cudaDevAttrCanFlushRemoteWrites, current_device()),
          "cudaDeviceGetAttribute");
    return flushes != 0 ? CU_STREAM_WAIT_VALUE_FLUSH : 0;
}

}  // namespace

MemoryHandle handle_of(const DeviceMemory& memory) {
    ARGOSY_CHECK(memory.bytes() % kSharedPageBytes == 0, "{} bytes of device memory are no whole pages",
                 memory.bytes());
    cudaIpcMemHandle_t handle;
    check(cudaIpcGetMemHandle(&handle, memory.data()), "cudaIpcGetMemHandle");
    MemoryHandle bytes;
    static_assert(sizeof(handle) == sizeof(bytes));
    std::memcpy(bytes.data(), &handle, sizeof(handle));
    return bytes;
}

MappedMemory::MappedMemory(const MemoryHandle& bytes) {
    cudaIpcMemHandle_t handle;
    std::memcpy(&handle, bytes.data(), sizeof(handle));
    void* data = nullptr;
    check(cudaIpcOpenMemHandle(&data, handle, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle");
    data_.reset(static_cast<std::byte*>(data));
}

void MappedMemory::Close::operator()(std::byte* data) const { cudaIpcCloseMemHandle(data); }

PeerAccess peer_access(const std::string& pci_bus_id) {
    int peer = 0;
    if (cudaDeviceGetByPCIBusId(&peer, pci_bus_id.c_str()) != cudaSuccess) {
        cudaGetLastError();
        return PeerAccess::Hidden;
    }
    int reached = 1;  // its own memory, of ranks that share a device
    if (peer != current_device())
        check(cudaDeviceCanAccessPeer(&reached, current_device(), peer), "cudaDeviceCanAccessPeer");
    return reached != 0 ? PeerAccess::Reached : PeerAccess::NotReached;
}

void write_value(std::byte* word, uint32_t value, const StreamView& stream) {
    static const StreamValue write = driver_function("cuStreamWriteValue32");
    call(write, "cuStreamWriteValue32", word, value, stream, CU_STREAM_WRITE_VALUE_DEFAULT);
}

void await_value(const std::byte* word, uint32_t value, const StreamView& stream) {
    static const StreamValue await = driver_function("cuStreamWaitValue32");
    static const unsigned flush = flush_flag();
    call(await, "cuStreamWaitValue32", word, value, stream, CU_STREAM_WAIT_VALUE_GEQ | flush);
}

}  // namespace argosy::cuda
