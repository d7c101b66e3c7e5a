// Shared parts of the two sources of CUDA's stand-in.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace argosy::testing {

/// Remembers an error as CUDA does, and returns the status.
cudaError_t returned(cudaError_t status);

/// Whether the address is in memory of another process.
bool is_mapped(const void* data);

/// A copy to such memory, which happens as late as it may.
void copy_late(cudaStream_t stream, std::function<void()> copy);

}  // namespace argosy::testing
