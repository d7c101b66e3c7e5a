#include "cuda/device.h"

#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <cstdlib>

#include "base/error.h"

namespace argosy::cuda {
namespace {

/// Advice on an error, for its message.
const char* remedy(cudaError_t status) {
    switch (status) {
        case cudaErrorMemoryAllocation:
            return "; use smaller sizes, or a GPU without other processes";
        case cudaErrorInvalidDevice:
            return "; CUDA_VISIBLE_DEVICES and the job's --gpus options select the devices that a process "
                   "sees";
        case cudaErrorDevicesUnavailable:
            return "; another process uses the GPU exclusively: nvidia-smi names it";
        case cudaErrorInsufficientDriver:
            return "; update the node's driver, or build this program with an older CUDA";
        case cudaErrorECCUncorrectable:
        case cudaErrorHardwareStackError:
        case cudaErrorNvlinkUncorrectable:
            return "; the GPU is broken: exclude its node from the job";
        case cudaErrorIllegalAddress:
        case cudaErrorLaunchFailure:
            return "; the failed call may be an earlier one: CUDA_LAUNCH_BLOCKING=1 finds it";
        default:
            return "";
    }
}

}  // namespace

void check(int code, const char* call) {
    const auto status = static_cast<cudaError_t>(code);
    if (status == cudaSuccess) return;
    cudaGetLastError();  // clears the error; otherwise the next cudaGetLastError returns it
    throw RunError("{} failed: {} ({}){}", call, cudaGetErrorString(status), cudaGetErrorName(status),
                   remedy(status));
}

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
            .capability = 10 * properties.major + properties.minor,
            .multiprocessors = properties.multiProcessorCount};
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

// NVTX loads the profiler's library, which this variable names, at the first range.
bool takes_ranges() { return std::getenv("NVTX_INJECTION64_PATH") != nullptr; }
void begin_range(const char* name) { nvtxRangePushA(name); }
void end_range() { nvtxRangePop(); }

}  // namespace argosy::cuda
