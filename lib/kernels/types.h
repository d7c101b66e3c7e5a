// Element types as memory holds them (arithmetic on them is done in float), and the handle of a GPU's stream.
#pragma once

#include <cstdint>

struct CUstream_st;  // CUDA's name for what a cudaStream_t points to

namespace argosy::kernels {

struct BFloat16 {
    uint16_t bits;
};
struct Half {
    uint16_t bits;
};

using GpuStream = CUstream_st*;

}  // namespace argosy::kernels
