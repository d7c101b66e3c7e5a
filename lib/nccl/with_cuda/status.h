// Turns NCCL's return codes into errors with NCCL's own text.
#pragma once

namespace argosy::nccl {

/// Throws RunError naming `call` unless `status` is ncclSuccess.
void check(int status, const char* call);

}  // namespace argosy::nccl
