// Turns CUDA's return codes into errors with CUDA's own text.
#pragma once

namespace argosy::cuda {

/// Throws RunError, which names `call`, unless `status` is cudaSuccess.
void check(int status, const char* call);

}  // namespace argosy::cuda
