#include "nccl/with_cuda/status.h"

#include <nccl.h>

#include <string>

#include "base/error.h"
#include "nccl/communicator.h"

namespace argosy::nccl {
namespace {

/// Advice on an error, for its message.
const char* remedy(ncclResult_t status) {
    switch (status) {
        case ncclUnhandledCudaError:
            return "a CUDA call within NCCL failed: too little memory, or a GPU or driver at fault";
        case ncclSystemError:
            return "a call of the system failed: see that the interface of NCCL_SOCKET_IFNAME is up, `ulimit "
                   "-l` "
                   "is unlimited and /dev/shm has room";
        case ncclRemoteError:
            return "another rank ended, or the network lost it: its own message, if any, says why";
        case ncclInvalidUsage:
            return "every rank needs a GPU of its own, and the same calls in the same order";
        default:
            return "NCCL_DEBUG=WARN has it say more";
    }
}

}  // namespace

void check(int code, const char* call) {
    const auto status = static_cast<ncclResult_t>(code);
    if (status == ncclSuccess) return;
    const std::string last = ncclGetLastError(nullptr);
    const std::string text = fmt::format("{} failed: {}{}{}; {}", call, ncclGetErrorString(status),
                                         last.empty() ? "" : ": ", last, remedy(status));
    if (status == ncclRemoteError) throw PeerError("{}", text);
    throw RunError("{}", text);
}

}  // namespace argosy::nccl
