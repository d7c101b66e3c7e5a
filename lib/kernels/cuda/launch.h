// Calls of CUDA's runtime by the host's side of kernels. They are plain C++, since .cu files handle no
// exceptions.
#pragma once

#include <cstdint>

namespace argosy::kernels::cuda {

/// Throws RunError that names the kernel unless `status`, of the launch, is cudaSuccess.
void check_launch(const char* kernel, int status);

/// The number of multiprocessors of the first device that was queried: a process works on devices of one
/// kind.
int num_multiprocessors();

/// count / by, rounded up.
inline int64_t divided_up(int64_t count, int64_t by) { return (count + by - 1) / by; }

/// The number of blocks that keeps a device busy, at most `most_blocks`.
inline int64_t blocks_for(int64_t most_blocks, int blocks_per_multiprocessor) {
    const int64_t wanted = int64_t{num_multiprocessors()} * blocks_per_multiprocessor;
    return most_blocks < wanted ? most_blocks : wanted;
}

}  // namespace argosy::kernels::cuda
