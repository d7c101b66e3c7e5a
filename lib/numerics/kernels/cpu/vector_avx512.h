// A Vector of sixteen floats with AVX-512 F, BW, DQ and VL.
#pragma once

#include <immintrin.h>

#include "kernels/types.h"

namespace argosy::kernels::ARGOSY_VARIANT {

struct Vector {
    static constexpr int kLanes = 16;
    // Of the 32 registers, a tile has 28 for sums, two for B, one for A.
    static constexpr int kTileRows = 14, kTileVectors = 2;
    __m512 lanes;
};

inline Vector set(float x) { return {_mm512_set1_ps(x)}; }
inline Vector operator+(Vector a, Vector b) { return {_mm512_add_ps(a.lanes, b.lanes)}; }
inline Vector operator-(Vector a, Vector b) { return {_mm512_sub_ps(a.lanes, b.lanes)}; }
inline Vector operator*(Vector a, Vector b) { return {_mm512_mul_ps(a.lanes, b.lanes)}; }
inline Vector operator/(Vector a, Vector b) { return {_mm512_div_ps(a.lanes, b.lanes)}; }
inline Vector multiply_add(Vector a, Vector b, Vector c) {
    return {_mm512_fmadd_ps(a.lanes, b.lanes, c.lanes)};
}
/// max and min return b if a or b is a NaN.
inline Vector max(Vector a, Vector b) { return {_mm512_max_ps(a.lanes, b.lanes)}; }
inline Vector min(Vector a, Vector b) { return {_mm512_min_ps(a.lanes, b.lanes)}; }
inline Vector square_root(Vector a) { return {_mm512_sqrt_ps(a.lanes)}; }
inline float sum(Vector a) { return _mm512_reduce_add_ps(a.lanes); }
inline float largest(Vector a) { return _mm512_reduce_max_ps(a.lanes); }

/// x rounded to the nearest integer, ties to even.
inline Vector round_to_integer(Vector x) {
    return {_mm512_roundscale_ps(x.lanes, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
/// 2^n for integers n in -126 ... 127; 0 for -127, infinite for 128.
inline Vector power_of_two(Vector n) {
    const __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n.lanes), _mm512_set1_epi32(127));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23))};
}

inline Vector load(const float* from) { return {_mm512_loadu_ps(from)}; }
inline void store(float* to, Vector a) { _mm512_storeu_ps(to, a.lanes); }

inline Vector load(const BFloat16* from) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16))};
}
/// Rounds to nearest, ties to even; a NaN stays a NaN. The instruction of AVX512_BF16 is not used, because it
/// turns subnormals into zero, unlike store() of the other variants.
inline void store(BFloat16* to, Vector a) {
    const __m512i words = _mm512_castps_si512(a.lanes);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(words, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(words, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(words, _mm512_set1_epi32(0x400000));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(a.lanes, a.lanes, _CMP_UNORD_Q);
    const __m512i chosen = _mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, is_nan, quiet), 16);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(chosen));
}

}  // namespace argosy::kernels::ARGOSY_VARIANT
