#include "kernels/gpu_place.h"

#include <cuda_runtime_api.h>

#include <stdexcept>

#include "cuda/device.h"

namespace argosy::kernels {
namespace {

void check(cudaError_t status) {
    if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

}  // namespace

bool has_gpu() {
    static const bool has = cuda::device_count() > 0;
    return has;
}

void* allocate_on_gpu(size_t bytes) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes));
    return memory;
}
void free_on_gpu(void* memory) { cudaFree(memory); }

void copy_to_gpu(void* to, const void* from, size_t bytes) {
    check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
}
void copy_from_gpu(void* to, const void* from, size_t bytes) {
    check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
}

void set_order(Threads, uint64_t) {}
void set_multiprocessors(int) {}
void reset_place() {}

}  // namespace argosy::kernels
