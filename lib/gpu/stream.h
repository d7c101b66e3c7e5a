// This thread's current stream: LibTorch's operations and this program's kernels are queued on it.
#pragma once

struct CUstream_st;  // CUDA's name for what a cudaStream_t points to

namespace argosy::gpu {

CUstream_st* current_stream();

}  // namespace argosy::gpu
