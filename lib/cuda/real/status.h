// CUDA's return codes as errors, with CUDA's own words.
#pragma once

namespace argosy::cuda {

/// Throws RunError naming `call` unless `status` is cudaSuccess.
void check(int status, const char* call);

}  // namespace argosy::cuda
