// Element types as memory holds them, whose arithmetic is done in float, and what names a GPU's stream.
#pragma once

#include <cstdint>

struct CUstream_st;  // CUDA's own name of what its handle points at

namespace argosy::kernels {

struct BFloat16 {
    uint16_t bits;
};
struct Half {
    uint16_t bits;
};

using GpuStream = CUstream_st*;

}  // namespace argosy::kernels
