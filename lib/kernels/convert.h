// Conversions between an element type and float: widening is exact, narrowing rounds to nearest, ties to
// even. They are the loads and stores of all kernels, as kernels of their own, so that tests can check exact
// values.
#pragma once

#include <cstdint>

namespace argosy::kernels {

template <class T>
struct Widen {
    int64_t count;
    const T* from;
    float* to;
};

template <class T>
struct Narrow {
    int64_t count;
    const float* from;
    T* to;
};

}  // namespace argosy::kernels
