#include "cuda/status.h"

#include <cuda_runtime_api.h>

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

}  // namespace argosy::cuda
