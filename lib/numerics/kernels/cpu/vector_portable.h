// A Vector of ARGOSY_VECTOR_LANES floats in plain C++, for the baseline instructions of the CPU.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/types.h"

namespace argosy::kernels::ARGOSY_VARIANT {

struct Vector {
    static constexpr int kLanes = ARGOSY_VECTOR_LANES;
    // SSE2 has 16 registers, two for each Vector: a tile has 8 for sums, two for B, two for A.
    static constexpr int kTileRows = 4, kTileVectors = 1;
    typedef float Lanes __attribute__((vector_size(4 * kLanes)));
    typedef uint32_t Words __attribute__((vector_size(4 * kLanes)));
    typedef uint16_t Halves __attribute__((vector_size(2 * kLanes)));
    Lanes lanes;
};

inline Vector set(float x) { return {x - Vector::Lanes{}}; }
inline Vector operator+(Vector a, Vector b) { return {a.lanes + b.lanes}; }
inline Vector operator-(Vector a, Vector b) { return {a.lanes - b.lanes}; }
inline Vector operator*(Vector a, Vector b) { return {a.lanes * b.lanes}; }
inline Vector operator/(Vector a, Vector b) { return {a.lanes / b.lanes}; }
inline Vector multiply_add(Vector a, Vector b, Vector c) { return {a.lanes * b.lanes + c.lanes}; }
/// max and min return b if a or b is a NaN.
inline Vector max(Vector a, Vector b) { return {a.lanes > b.lanes ? a.lanes : b.lanes}; }
inline Vector min(Vector a, Vector b) { return {a.lanes < b.lanes ? a.lanes : b.lanes}; }
inline Vector square_root(Vector a) {
    for (int i = 0; i < Vector::kLanes; ++i) a.lanes[i] = __builtin_sqrtf(a.lanes[i]);
    return a;
}
inline float sum(Vector a) {
    float total = 0;
    for (int i = 0; i < Vector::kLanes; ++i) total += a.lanes[i];
    return total;
}
inline float largest(Vector a) {
    float result = a.lanes[0];
    for (int i = 1; i < Vector::kLanes; ++i) result = a.lanes[i] > result ? a.lanes[i] : result;
    return result;
}

/// x rounded to the nearest integer, ties to even. REQUIRES: |x| < 2^22.
inline Vector round_to_integer(Vector x) {
    const Vector magic = set(12582912.0f);  // 1.5 * 2^23: the sum has no bits left for a fraction
    return (x + magic) - magic;
}
/// 2^n for integers n in -126 ... 127; 0 for -127, infinite for 128.
inline Vector power_of_two(Vector n) {
    const auto exponent = __builtin_convertvector(n.lanes + 127.0f, Vector::Words);
    return {(Vector::Lanes)(exponent << 23)};
}

inline Vector load(const float* from) {
    Vector a;
    std::memcpy(&a, from, sizeof a);
    return a;
}
inline void store(float* to, Vector a) { std::memcpy(to, &a, sizeof a); }

inline Vector load(const BFloat16* from) {
    Vector::Halves halves;
    std::memcpy(&halves, from, sizeof halves);
    return {(Vector::Lanes)(__builtin_convertvector(halves, Vector::Words) << 16)};
}
/// Rounds to nearest, ties to even; a NaN stays a NaN.
inline void store(BFloat16* to, Vector a) {
    const auto words = (Vector::Words)a.lanes;
    const Vector::Words rounded = (words + 0x7fff + ((words >> 16) & 1)) >> 16;
    const Vector::Words quiet = (words >> 16) | 0x40;
    const Vector::Words chosen = (words & 0x7fffffff) > 0x7f800000 ? quiet : rounded;
    const auto halves = __builtin_convertvector(chosen, Vector::Halves);
    std::memcpy(to, &halves, sizeof halves);
}

}  // namespace argosy::kernels::ARGOSY_VARIANT
