// A tile with its sums in vector registers. Each word of A is multiplied by kVectors vectors of B.
//
// A step along k takes kVectors loads of B, kRows broadcasts of A, and kRows * kVectors multiply-adds, which
// are the limit. The sums, kVectors vectors of B and one vector of A must fit into the registers.
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
    static constexpr bool kReadsInPlace = true;
    struct Session {
        Session() {}
    };

    static void multiply(int64_t k, const Element* a, const Element* b, float* c, int64_t c_stride,
                         bool accumulate) {
        add<kRows>(k, PanelRows{words_of(a)}, words_of(b), c, c_stride, accumulate);
    }

    static void multiply_first(int64_t num_rows, int64_t k, const Element* a, const Element* b, float* c,
                               int64_t c_stride, bool accumulate) {
        // A half is even: 64 rows are 4 tiles of 14 and one of 8, or 10 tiles of 6 and one of 4.
        constexpr int kQuarter = (kRows + 3) / 4, kHalf = 2 * kQuarter;
        const PanelRows rows{words_of(a)};
        if (num_rows <= kQuarter) return add<kQuarter>(k, rows, words_of(b), c, c_stride, accumulate);
        if (num_rows <= kHalf) return add<kHalf>(k, rows, words_of(b), c, c_stride, accumulate);
        add<kRows>(k, rows, words_of(b), c, c_stride, accumulate);
    }

    /// The same as multiply(), for rows of A that are not packed. The rows are a_stride apart and contiguous
    /// along k.
    static void multiply_in_place(int64_t k, const Element* a, int64_t a_stride, const Element* b, float* c,
                                  int64_t c_stride, bool accumulate) {
        PlacedRows rows;
        for (int row = 0; row < kRows; ++row) rows.words[row] = words_of(a + row * a_stride);
        add<kRows>(k, rows, words_of(b), c, c_stride, accumulate);
    }

  private:
    static const float* words_of(const Element* elements) { return reinterpret_cast<const float*>(elements); }

    struct PanelRows {
        const float* words;
        const float* row(int i) const { return words + i * kLanes; }
        void advance() { words += kRows * kLanes; }
    };
    struct PlacedRows {
        const float* words[kRows];
        const float* row(int i) const { return words[i]; }
        void advance() {
#pragma GCC unroll 16
            for (const float*& row : words) row += kLanes;
        }
    };

    /// Multiplies the first kUsed rows.
    template <int kUsed, class Rows>
    static inline __attribute__((always_inline)) void add(int64_t k, Rows a, const float* b, float* c,
                                                          int64_t c_stride, bool accumulate) {
        Vector sums[kUsed][kVectors];
#pragma GCC unroll 16
        for (auto& row : sums) {
#pragma GCC unroll 4
            for (Vector& sum : row) sum = set(0.0f);
        }
        for (int64_t begin = 0; begin < k; begin += kDepth, a.advance()) {
#pragma GCC unroll 2
            for (int word = 0; word < kLanes; ++word, b += kColumns) step(a, word, b, sums);
        }
#pragma GCC unroll 16
        for (int row = 0; row < kUsed; ++row) {
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; ++v) {
                float* to = c + row * c_stride + v * kLanes;
                store(to, accumulate ? load(to) + sums[row][v] : sums[row][v]);
            }
        }
    }

    template <int kUsed, class Rows>
    static inline __attribute__((always_inline)) void step(const Rows& a, int word, const float* b,
                                                           Vector (&sums)[kUsed][kVectors]) {
        Vector b_vectors[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) b_vectors[v] = load(b + v * kLanes);
#pragma GCC unroll 16
        for (int row = 0; row < kUsed; ++row) {
            const Vector a_vector = repeat_word(a.row(row) + word);
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; ++v) {
                sums[row][v] = Instruction::dot(sums[row][v], a_vector, b_vectors[v]);
            }
        }
    }
};

}  // namespace argosy::kernels::ARGOSY_VARIANT
