// y = silu(gate) * up with silu(g) = g / (1 + exp(-g)). Gate and up are columns of matrices, so their rows
// need not be contiguous; y and dy are dense. Forward reads two elements and writes one, backward reads three
// and writes two: bound by memory in bf16, nearly so in fp32 (about 20 FLOP for the exponential).
#pragma once

#include <cstdint>

namespace argosy::kernels {

template <class T>
struct Swiglu {
    int64_t num_rows, row_size;
    const T* gate;
    const T* up;
    int64_t stride;  // of gate and up: elements from a row to the next
    T* y;
};

template <class T>
struct SwigluBackward {
    int64_t num_rows, row_size;
    const T* dy;
    const T* gate;
    const T* up;
    T* dgate;
    T* dup;
    int64_t stride;  // of all but dy
};

}  // namespace argosy::kernels
