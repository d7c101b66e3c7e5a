#include "cuda/memory.h"

#include <cuda_runtime_api.h>

#include <exception>

#include "base/error.h"
#include "cuda/device.h"

namespace argosy::cuda {
namespace {

std::byte* allocate(size_t bytes) {
    void* data = nullptr;
    const cudaError_t status = cudaMalloc(&data, bytes);
    if (status == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        throw MemoryError({.requested_bytes = bytes},
                          "no memory on the GPU for {} bytes: {} are free; use smaller buffers, or a GPU "
                          "without other processes",
                          bytes, free_memory_bytes());
    }
    check(status, "cudaMalloc");
    return static_cast<std::byte*>(data);
}

std::byte* allocate_pinned(size_t bytes) {
    void* data = nullptr;
    check(cudaHostAlloc(&data, bytes, cudaHostAllocDefault), "cudaHostAlloc");
    return static_cast<std::byte*>(data);
}

void copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, const StreamView& stream) {
    check(cudaMemcpyAsync(to, from, bytes, kind, stream.handle()), "cudaMemcpyAsync");
}

}  // namespace

DeviceMemory::DeviceMemory(size_t bytes) : data_(allocate(bytes)), bytes_(bytes) {}

void DeviceMemory::Free::operator()(std::byte* data) const { cudaFree(data); }

PinnedMemory::PinnedMemory(size_t bytes) : data_(allocate_pinned(bytes)), bytes_(bytes) {}

// cudaFreeHost waits for the device. The device may hang if an error unwinds the stack, so the memory is
// leaked then: the process ends anyway.
void PinnedMemory::Free::operator()(std::byte* data) const {
    if (std::uncaught_exceptions() == 0) cudaFreeHost(data);
}

void set_to_zero(std::byte* data, size_t bytes, const StreamView& stream) {
    check(cudaMemsetAsync(data, 0, bytes, stream.handle()), "cudaMemsetAsync");
}

void copy_to_device(std::byte* to, std::span<const std::byte> from, const StreamView& stream) {
    copy(to, from.data(), from.size(), cudaMemcpyHostToDevice, stream);
}

void copy_to_host(std::span<std::byte> to, const std::byte* from, const StreamView& stream) {
    copy(to.data(), from, to.size(), cudaMemcpyDeviceToHost, stream);
}

void copy_on_device(std::byte* to, const std::byte* from, size_t bytes, const StreamView& stream) {
    copy(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

}  // namespace argosy::cuda
