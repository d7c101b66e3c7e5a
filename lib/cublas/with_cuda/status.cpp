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
            return "; less at a time, or a GPU that nobody else uses, may do";
        case CUBLAS_STATUS_EXECUTION_FAILED:
            return "; what failed may be an earlier call: CUDA_LAUNCH_BLOCKING=1 finds it";
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
