// The vector of the instruction set that this translation unit is compiled for, and code that all variants
// share: loops over rows whose length is not a multiple of kLanes, and functions with the same arithmetic
// everywhere.
//
// Everything here and in the sources of cpu/ is in a namespace with the variant's name and calls no template
// or inline function from elsewhere. The linker would keep one copy of such a function for all variants,
// perhaps one with instructions that this CPU lacks.
#pragma once

#include ARGOSY_VECTOR_HEADER

namespace argosy::kernels::ARGOSY_VARIANT {

inline constexpr int kLanes = Vector::kLanes;

/// Loads the first `count` < kLanes elements, and zeros in the other lanes.
template <class T>
inline Vector load_first(const T* from, int64_t count) {
    T padded[kLanes] = {};
    for (int64_t i = 0; i < count; ++i) padded[i] = from[i];
    return load(padded);
}
template <class T>
inline void store_first(T* to, Vector a, int64_t count) {
    T padded[kLanes];
    store(padded, a);
    for (int64_t i = 0; i < count; ++i) to[i] = padded[i];
}

/// Calls visit(i, load, store) for each full vector of a row and once for the rest. `load` and `store` stay
/// within the row, and lanes past the end of the row load as zero.
template <class Visit>
inline __attribute__((always_inline)) void for_each_vector(int64_t size, Visit visit) {
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) {
        visit(
            i, [](const auto* from) __attribute__((always_inline)) { return load(from); },
            [](auto* to, Vector a) __attribute__((always_inline)) { store(to, a); });
    }
    if (const int64_t rest = size - i; rest > 0) {
        visit(
            i, [rest](const auto* from) { return load_first(from, rest); },
            [rest](auto* to, Vector a) { store_first(to, a, rest); });
    }
}

/// exp(x) with an error of at most 2 units in the last place. The result is 0 below -87.7, where it would be
/// subnormal, infinite above 88.3, and NaN for NaN.
inline Vector exponential(Vector x) {
    const Vector clamped = min(set(89.0f), max(set(-88.0f), x));
    const Vector n = round_to_integer(clamped * set(1.44269504f));
    // r = x - n ln 2, subtracted in two parts, so that r keeps its last bits.
    const Vector r = multiply_add(n, set(2.12194440e-4f), multiply_add(n, set(-0.693359375f), clamped));
    Vector p = set(1.9875691500e-4f);
    p = multiply_add(p, r, set(1.3981999507e-3f));
    p = multiply_add(p, r, set(8.3334519073e-3f));
    p = multiply_add(p, r, set(4.1665795894e-2f));
    p = multiply_add(p, r, set(1.6666665459e-1f));
    p = multiply_add(p, r, set(5.0000001201e-1f));
    p = multiply_add(p, r * r, r + set(1.0f));
    return p * power_of_two(n);
}

inline Vector sigmoid(Vector x) { return set(1.0f) / (set(1.0f) + exponential(set(0.0f) - x)); }

}  // namespace argosy::kernels::ARGOSY_VARIANT
