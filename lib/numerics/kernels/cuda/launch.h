// Host functions for kernel launches that call the CUDA runtime and may throw. They are in launch.cpp,
// because this project's .cu files neither throw nor catch.
#pragma once

#include <cstdint>

namespace argosy::kernels::cuda {

/// Throws RunError, naming the kernel, if `status`, the result of a launch, is not cudaSuccess.
void check_launch(const char* kernel, int status);

/// The number of multiprocessors of the device that was current at the first call. All devices of a process
/// are of one kind.
int num_multiprocessors();

/// The maximum of Launch::shared_bytes, for a kernel with less than 1 KiB of __shared__ variables.
int max_shared_bytes();

/// Lets launches of the kernel have so many shared_bytes. Throws RunError if the device has fewer.
void allow_shared_bytes(const char* name, const void* kernel, int bytes);

/// count / by, rounded up.
inline int64_t ceil_div(int64_t count, int64_t by) { return (count + by - 1) / by; }

/// The number of blocks that keeps a device busy, at most `max_blocks`.
inline int64_t blocks_for(int64_t max_blocks, int blocks_per_multiprocessor) {
    const int64_t wanted = int64_t{num_multiprocessors()} * blocks_per_multiprocessor;
    return max_blocks < wanted ? max_blocks : wanted;
}

}  // namespace argosy::kernels::cuda
