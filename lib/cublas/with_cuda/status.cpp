#include "cublas/with_cuda/status.h"

#include <cublasLt.h>

#include "base/error.h"

namespace argosy::cublas {
namespace {

const char* remedy(cublasStatus_t status) {
    switch (status) {
        case CUBLAS_STATUS_NOT_INITIALIZED:
            return "; it needs a GPU, a driver that runs this CUDA, and some memory that is free there";
        case CUBLAS_STATUS_ALLOC_FAILED:
            return "; use smaller sizes, or a GPU without other processes";
        case CUBLAS_STATUS_EXECUTION_FAILED:
            return "; the failed call may be an earlier one: CUDA_LAUNCH_BLOCKING=1 finds it";
        case CUBLAS_STATUS_ARCH_MISMATCH:
            return "; this GPU is older than the operation";
        default:
            return "";
    }
}

}  // namespace

std::string explain(int code) {
    const auto status = static_cast<cublasStatus_t>(code);
    return fmt::format("{} ({}){}", cublasLtGetStatusName(status), cublasLtGetStatusString(status),
                       remedy(status));
}

void check(int status, const char* call) {
    if (status != CUBLAS_STATUS_SUCCESS) throw RunError("{} failed: {}", call, explain(status));
}

}  // namespace argosy::cublas
