#include <cuda_runtime_api.h>

#include <cstdlib>
#include <new>

#include "cuda/device.h"
#include "kernels/gpu_place.h"

namespace argosy::kernels {
namespace {

// Runs before CUDA starts: every launch then ends before it returns, so tests can read memory at once.
[[maybe_unused]] const int launches_block = setenv("CUDA_LAUNCH_BLOCKING", "1", 1);

}  // namespace

bool has_gpu() {
    static const bool has = cuda::device_count() > 0;
    return has;
}

void* allocate_visible(size_t bytes) {
    void* memory = nullptr;
    if (cudaMallocManaged(&memory, bytes == 0 ? 1 : bytes, cudaMemAttachGlobal) != cudaSuccess) {
        throw std::bad_alloc();
    }
    return memory;
}
void free_visible(void* memory) { cudaFree(memory); }

void set_order(Threads, uint64_t) {}
void set_multiprocessors(int) {}
void reset_place() {}

}  // namespace argosy::kernels
