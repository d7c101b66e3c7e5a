// A Vector of eight floats with AVX2 and FMA.
#pragma once

#include <immintrin.h>

#include "kernels/types.h"

namespace argosy::kernels::ARGOSY_VARIANT {

struct Vector {
    static constexpr int kLanes = 8;
    // Of the 16 registers, a tile has 12 for sums, two for B, one for A.
    static constexpr int kTileRows = 6, kTileVectors = 2;
    __m256 lanes;
};

inline Vector set(float x) { return {_mm256_set1_ps(x)}; }
inline Vector operator+(Vector a, Vector b) { return {_mm256_add_ps(a.lanes, b.lanes)}; }
inline Vector operator-(Vector a, Vector b) { return {_mm256_sub_ps(a.lanes, b.lanes)}; }
inline Vector operator*(Vector a, Vector b) { return {_mm256_mul_ps(a.lanes, b.lanes)}; }
inline Vector operator/(Vector a, Vector b) { return {_mm256_div_ps(a.lanes, b.lanes)}; }
inline Vector multiply_add(Vector a, Vector b, Vector c) {
    return {_mm256_fmadd_ps(a.lanes, b.lanes, c.lanes)};
}
/// max and min return b if a or b is a NaN.
inline Vector max(Vector a, Vector b) { return {_mm256_max_ps(a.lanes, b.lanes)}; }
inline Vector min(Vector a, Vector b) { return {_mm256_min_ps(a.lanes, b.lanes)}; }
inline Vector square_root(Vector a) { return {_mm256_sqrt_ps(a.lanes)}; }

inline float sum(Vector a) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a.lanes), _mm256_extractf128_ps(a.lanes, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
}
inline float largest(Vector a) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a.lanes), _mm256_extractf128_ps(a.lanes, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps(x, x, 1)));
}

/// x rounded to the nearest integer, ties to even.
inline Vector round_to_integer(Vector x) {
    return {_mm256_round_ps(x.lanes, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
/// 2^n for integers n in -126 ... 127; 0 for -127, infinite for 128.
inline Vector power_of_two(Vector n) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n.lanes), _mm256_set1_epi32(127));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23))};
}

inline Vector load(const float* from) { return {_mm256_loadu_ps(from)}; }
inline void store(float* to, Vector a) { _mm256_storeu_ps(to, a.lanes); }

inline Vector load(const BFloat16* from) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16))};
}
/// Rounds to nearest, ties to even; a NaN stays a NaN.
inline void store(BFloat16* to, Vector a) {
    const __m256i words = _mm256_castps_si256(a.lanes);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(words, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(words, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(words, _mm256_set1_epi32(0x400000));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(a.lanes, a.lanes, _CMP_UNORD_Q));
    const __m256i chosen = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, is_nan), 16);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(chosen, chosen), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(packed));
}

}  // namespace argosy::kernels::ARGOSY_VARIANT
