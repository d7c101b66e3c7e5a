// The 32-bit words that a tile multiplies: floats, or pairs of bf16 that are neighbours along k, the even one
// in the low half (as AVX512_BF16 and AMX require). A Vector holds a row of words, one in each lane.
#pragma once

#include <utility>

#include "kernels/cpu/vector.h"

namespace argosy::kernels::ARGOSY_VARIANT {

/// The bits of a Vector, for steps that must not use float arithmetic, which may change the bits of a NaN.
typedef uint32_t Bits __attribute__((vector_size(4 * kLanes)));
inline Bits bits_of(Vector a) { return (Bits)a.lanes; }
inline Vector vector_of(Bits bits) { return {(decltype(Vector::lanes))bits}; }
/// The word at `from` in all lanes.
inline Vector repeat_word(const float* from) {
    uint32_t word;
    __builtin_memcpy(&word, from, sizeof word);
    return vector_of(Bits{} + word);
}

struct FloatWords {
    using Element = float;
    static constexpr int kElements = 1;  // in a word

    /// kLanes words that lie one after the other along k.
    template <class T>
    static Vector along_k(const T* from) {
        return load(from);
    }
    /// A word from each of kLanes lanes that lie one after the other.
    template <class T>
    static Vector along_lanes(const T* from, int64_t /*k_stride*/) {
        return load(from);
    }
};

struct PairWords {
    using Element = BFloat16;
    static constexpr int kElements = 2;

    static Vector along_k(const BFloat16* from) { return load(reinterpret_cast<const float*>(from)); }
    static Vector along_k(const float* from) {
        BFloat16 rounded[2 * kLanes];
        store(rounded, load(from));
        store(rounded + kLanes, load(from + kLanes));
        return along_k(rounded);
    }

    static Vector along_lanes(const BFloat16* from, int64_t k_stride) {
        return vector_of(bits_of(load(from)) >> 16 | bits_of(load(from + k_stride)));
    }
    static Vector along_lanes(const float* from, int64_t k_stride) {
        BFloat16 rounded[2 * kLanes];
        store(rounded, load(from));
        store(rounded + kLanes, load(from + k_stride));
        return along_lanes(rounded, kLanes);
    }
};

/// kLanes rows of kLanes words.
struct Square {
    Vector rows[kLanes];
};

/// Exchanges the blocks of kStep words that lie off the diagonal between two rows, kStep apart.
template <int kStep, int... kWord>
inline void exchange_blocks(Vector& upper, Vector& lower, std::integer_sequence<int, kWord...>) {
    const auto a = upper.lanes, b = lower.lanes;
    upper.lanes = __builtin_shufflevector(a, b, ((kWord & kStep) == 0 ? kWord : kWord - kStep + kLanes)...);
    lower.lanes = __builtin_shufflevector(a, b, ((kWord & kStep) == 0 ? kWord + kStep : kWord + kLanes)...);
}

/// Transposes the square. REQUIRES: blocks of kStep words are transposed already.
template <int kStep = 1>
inline __attribute__((always_inline)) void transpose(Square& square) {
    if constexpr (kStep < kLanes) {
#pragma GCC unroll 16
        for (int row = 0; row < kLanes; ++row) {
            if ((row & kStep) != 0) continue;
            exchange_blocks<kStep>(square.rows[row], square.rows[row + kStep],
                                   std::make_integer_sequence<int, kLanes>());
        }
        transpose<2 * kStep>(square);
    }
}

}  // namespace argosy::kernels::ARGOSY_VARIANT
