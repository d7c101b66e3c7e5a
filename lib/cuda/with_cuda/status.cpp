#include "cuda/status.h"

#include <cuda_runtime_api.h>

#include "base/error.h"

namespace argosy::cuda {
namespace {

/// Advice on an error, for its message.
const char* remedy(cudaError_t status) {
    switch (status) {
        case cudaErrorMemoryAllocation:
            return "; less at a time, or a GPU that nobody else uses, may do";
        case cudaErrorInvalidDevice:
            return "; CUDA_VISIBLE_DEVICES and the job's --gpus options say which devices a process sees";
        case cudaErrorDevicesUnavailable:
            return "; another process has the GPU for itself: nvidia-smi names it";
        case cudaErrorInsufficientDriver:
            return "; the node needs a newer driver, or this program a build with an older CUDA";
        case cudaErrorECCUncorrectable:
        case cudaErrorHardwareStackError:
        case cudaErrorNvlinkUncorrectable:
            return "; the GPU is broken: take its node out of the job";
        case cudaErrorIllegalAddress:
        case cudaErrorLaunchFailure:
            return "; what failed may be an earlier call: CUDA_LAUNCH_BLOCKING=1 finds it";
        default:
            return "";
    }
}

}  // namespace

void check(int code, const char* call) {
    const auto status = static_cast<cudaError_t>(code);
    if (status == cudaSuccess) return;
    cudaGetLastError();  // clears it, or the next cudaGetLastError returns this error
    throw RunError("{} failed: {} ({}){}", call, cudaGetErrorString(status), cudaGetErrorName(status),
                   remedy(status));
}

}  // namespace argosy::cuda
