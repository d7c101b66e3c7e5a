// A tile whose sums are vector registers: each word of A is multiplied with kVectors vectors of B.
//
// A step along k takes kVectors loads of B and kRows broadcasts of A for kRows * kVectors fused
// multiply-adds, so that these bound it. The sums, the vectors of B and one of A must fit the registers.
#pragma once

#include "kernels/cpu/pack.h"

namespace argosy::kernels::ARGOSY_VARIANT {

/// The instruction of a tile of floats.
struct MultiplyAdd {
    static Vector dot(Vector sum, Vector a, Vector b) { return multiply_add(a, b, sum); }
};

template <class WordsOfPanels, class Instruction, int kNumRows, int kVectors>
struct VectorTile {
    using Words = WordsOfPanels;
    using Element = typename Words::Element;
    static constexpr int kRows = kNumRows;
    static constexpr int kColumns = kVectors * kLanes;
    static constexpr int kDepth = kLanes * Words::kElements;
    struct Session {
        Session() {}
    };

    static void multiply(int64_t k, const Element* a, const Element* b, float* c, int64_t c_stride,
                         bool accumulate) {
        const auto *a_words = reinterpret_cast<const float*>(a), *b_words = reinterpret_cast<const float*>(b);
        Vector sums[kRows][kVectors];
#pragma GCC unroll 16
        for (auto& row : sums) {
#pragma GCC unroll 4
            for (Vector& sum : row) sum = set(0.0f);
        }
        for (int64_t begin = 0; begin < k; begin += kDepth, a_words += kRows * kLanes) {
#pragma GCC unroll 2
            for (int word = 0; word < kLanes; ++word, b_words += kColumns)
                step(a_words + word, b_words, sums);
        }
#pragma GCC unroll 16
        for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; ++v) {
                float* to = c + row * c_stride + v * kLanes;
                store(to, accumulate ? load(to) + sums[row][v] : sums[row][v]);
            }
        }
    }

  private:
    static inline __attribute__((always_inline)) void step(const float* a, const float* b,
                                                           Vector (&sums)[kRows][kVectors]) {
        Vector b_vectors[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) b_vectors[v] = load(b + v * kLanes);
#pragma GCC unroll 16
        for (int row = 0; row < kRows; ++row) {
            const Vector a_vector = repeat_word(a + row * kLanes);
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; ++v) {
                sums[row][v] = Instruction::dot(sums[row][v], a_vector, b_vectors[v]);
            }
        }
    }
};

}  // namespace argosy::kernels::ARGOSY_VARIANT
