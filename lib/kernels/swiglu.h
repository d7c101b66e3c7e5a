// y = silu(gate) * up with silu(g) = g / (1 + exp(-g)). Forward reads two elements and writes one, backward
// reads three and writes two: bound by memory in bf16, about so in fp32 (some 20 FLOP for the exponential).
#pragma once

#include <cstdint>

namespace argosy::kernels {

template <class T>
struct Swiglu {
    int64_t count;
    const T* gate;
    const T* up;
    T* y;
};

template <class T>
struct SwigluBackward {
    int64_t count;
    const T* dy;
    const T* gate;
    const T* up;
    T* dgate;
    T* dup;
};

}  // namespace argosy::kernels
