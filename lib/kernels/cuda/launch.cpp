#include "kernels/cuda/launch.h"

#include <cuda_runtime_api.h>

#include <string>

#include "cuda/status.h"

namespace argosy::kernels::cuda {
namespace {

int query_num_multiprocessors() {
    int device = 0, count = 0;
    argosy::cuda::check(cudaGetDevice(&device), "cudaGetDevice");
    argosy::cuda::check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
                        "cudaDeviceGetAttribute");
    return count;
}

}  // namespace

void check_launch(const char* kernel, int status) {
    if (status != cudaSuccess) argosy::cuda::check(status, (std::string("launching ") + kernel).c_str());
}

int num_multiprocessors() {
    static const int number = query_num_multiprocessors();
    return number;
}

}  // namespace argosy::kernels::cuda
