#include "kernels/cuda/launch.h"

#include <cuda_runtime_api.h>

#include <string>

#include "cuda/device.h"

namespace argosy::kernels::cuda {
namespace {

int attribute(cudaDeviceAttr which) {
    int device = 0, value = 0;
    argosy::cuda::check(cudaGetDevice(&device), "cudaGetDevice");
    argosy::cuda::check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
    return value;
}

}  // namespace

void check_launch(const char* kernel, int status) {
    if (status != cudaSuccess) argosy::cuda::check(status, (std::string("launching ") + kernel).c_str());
}

int num_multiprocessors() {
    static const int number = attribute(cudaDevAttrMultiProcessorCount);
    return number;
}

int max_shared_bytes() {
    constexpr int kVariables = 1024;
    static const int bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - kVariables;
    return bytes;
}

void allow_shared_bytes(const char* name, const void* kernel, int bytes) {
    check_launch(name, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

}  // namespace argosy::kernels::cuda
