// The stream that LibTorch's operations of this thread go to, and ours with them.
#pragma once

struct CUstream_st;  // CUDA's own name of what a stream is

namespace argosy::gpu {

CUstream_st* current_stream();

}  // namespace argosy::gpu
