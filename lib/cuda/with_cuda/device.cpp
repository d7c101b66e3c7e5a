#include "cuda/device.h"

#include <cuda_runtime_api.h>

#include "base/error.h"
#include "cuda/status.h"

namespace argosy::cuda {

int device_count() {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    const bool no_driver = status == cudaErrorInsufficientDriver && driver_version() == 0;
    if (status == cudaErrorNoDevice || no_driver) {
        cudaGetLastError();
        return 0;
    }
    if (status == cudaErrorInsufficientDriver) {
        throw RunError(
            "the GPU driver runs CUDA up to {}, and this program is built with {}: update the node's driver, "
            "or build this program with an older CUDA",
            version_text(driver_version()), version_text(runtime_version()));
    }
    check(status, "cudaGetDeviceCount");
    return count;
}

void set_device(int number) { check(cudaSetDevice(number), "cudaSetDevice"); }

int current_device() {
    int number = 0;
    check(cudaGetDevice(&number), "cudaGetDevice");
    return number;
}

Device describe_device(int number) {
    constexpr int kMaxLetters = 32;
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, number), "cudaGetDeviceProperties");
    char bus_id[kMaxLetters] = {};
    check(cudaDeviceGetPCIBusId(bus_id, kMaxLetters, number), "cudaDeviceGetPCIBusId");
    return {.number = number,
            .name = properties.name,
            .pci_bus_id = bus_id,
            .memory_bytes = properties.totalGlobalMem,
            .capability = 10 * properties.major + properties.minor};
}

size_t free_memory_bytes() {
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return free;
}

int runtime_version() {
    int version = 0;
    check(cudaRuntimeGetVersion(&version), "cudaRuntimeGetVersion");
    return version;
}

int driver_version() {
    int version = 0;
    check(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
    return version;
}

}  // namespace argosy::cuda
