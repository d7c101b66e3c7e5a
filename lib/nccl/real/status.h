// NCCL's return codes as errors, with NCCL's own words.
#pragma once

namespace argosy::nccl {

/// Throws RunError naming `call` unless `status` is ncclSuccess.
void check(int status, const char* call);

}  // namespace argosy::nccl
