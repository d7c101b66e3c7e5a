// Packs operands into the panels that tiles read; cpu/tile.h describes the layout of panels. A tile
// multiplies 32-bit words. A word is a float, or a pair of bf16 elements that are neighbours along k, with
// the even element in the low half (as AVX512_BF16 and AMX require). A Vector holds one word in each lane.
#pragma once

#include <utility>

#include "kernels/cpu/vector.h"
#include "kernels/types.h"

namespace argosy::kernels::ARGOSY_VARIANT {

/// The bits of a Vector, for steps that only move bits. Float arithmetic may change the bits of a NaN.
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
    static constexpr int kElements = 1;  // elements in a word

    /// Loads kLanes words that are neighbours along k.
    template <class T>
    static Vector along_k(const T* from) {
        return load(from);
    }
    /// Loads one word from each of kLanes neighbouring lanes.
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

/// One step of a transposition, for two rows that are kStep apart: exchanges the blocks of kStep words that
/// lie off the diagonal.
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

template <class T>
inline Operand<T> starting_at(const Operand<T>& whole, int64_t lane, int64_t k) {
    return {whole.data + lane * whole.lane_stride + k * whole.k_stride, whole.lane_stride, whole.k_stride};
}

enum class RowsAre { Lanes, Words };

/// Loads the first kLanes lanes by kLanes words of `from`, with zeros past num_lanes and k. The rows of the
/// square are lanes or words, as kRowsAre says.
template <class Words, RowsAre kRowsAre, class T>
inline __attribute__((always_inline)) Square load_square(Operand<T> from, int64_t num_lanes, int64_t k) {
    constexpr int kDepth = kLanes * Words::kElements;
    T copied[kLanes * kDepth];
    if (num_lanes < kLanes || k < kDepth || (from.lane_stride != 1 && from.k_stride != 1)) {
        for (int i = 0; i < kLanes * kDepth; ++i) {
            const int64_t lane = i / kDepth, element = i % kDepth;
            const bool inside = lane < num_lanes && element < k;
            copied[i] = inside ? from.data[lane * from.lane_stride + element * from.k_stride] : T{};
        }
        from = {copied, kDepth, 1};
    }
    Square square;
    const bool lanes_are_rows = from.k_stride == 1;
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
        square.rows[i] = lanes_are_rows ? Words::along_k(from.data + i * from.lane_stride)
                                        : Words::along_lanes(from.data + i * Words::kElements * from.k_stride,
                                                             from.k_stride);
    }
    if (lanes_are_rows != (kRowsAre == RowsAre::Lanes)) transpose(square);
    return square;
}

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t round_up(int64_t size, int64_t unit) { return (size + unit - 1) / unit * unit; }

/// The number of elements that pack_a and pack_b write, padding included.
template <class Tile>
inline int64_t packed_a_size(int64_t num_rows, int64_t k) {
    return round_up(num_rows, Tile::kRows) * round_up(k, Tile::kDepth);
}
template <class Tile>
inline int64_t packed_b_size(int64_t num_columns, int64_t k) {
    return round_up(num_columns, Tile::kColumns) * round_up(k, Tile::kDepth);
}

/// Prefetches the square that is kDepth further along k. CPUs do not prefetch rows that lie far apart, and
/// each square would wait for memory.
template <class Tile, class T>
inline __attribute__((always_inline)) void fetch_next(const Operand<T>& from, int64_t lane, int64_t k) {
    const T* next = from.data + lane + (k + Tile::kDepth) * from.k_stride;
#pragma GCC unroll 32
    for (int64_t i = 0; i < Tile::kDepth; ++i) __builtin_prefetch(next + i * from.k_stride);
}

/// Prefetches the square of the next kLanes lanes, which are rows that are contiguous along k.
template <class T>
inline __attribute__((always_inline)) void fetch_next_lanes(const Operand<T>& from, int64_t lane, int64_t k) {
    const T* next = from.data + (lane + kLanes) * from.lane_stride + k;
#pragma GCC unroll 16
    for (int64_t i = 0; i < kLanes; ++i) __builtin_prefetch(next + i * from.lane_stride);
}

/// Calls visit(lane, k) for the first lane and k of every square, in the order of memory.
template <class Tile, class T, class Visit>
inline __attribute__((always_inline)) void for_each_square(const Operand<T>& from, int64_t num_lanes,
                                                           int64_t k, Visit visit) {
    if (from.k_stride == 1) {
        for (int64_t lane = 0; lane < num_lanes; lane += kLanes) {
            const bool is_last = lane + 2 * kLanes > num_lanes;
            for (int64_t begin = 0; begin < k; begin += Tile::kDepth) {
                if (!is_last) fetch_next_lanes(from, lane, begin);
                visit(lane, begin);
            }
        }
    } else {
        for (int64_t begin = 0; begin < k; begin += Tile::kDepth) {
            for (int64_t lane = 0; lane < num_lanes; lane += kLanes) {
                if (begin + Tile::kDepth < k) fetch_next<Tile>(from, lane, begin);
                visit(lane, begin);
            }
        }
    }
}

/// Packs num_rows by k elements of A into panels of Tile::kRows rows, one panel after the other.
template <class Tile, class T>
void pack_a(const Operand<T>& a, int64_t num_rows, int64_t k, typename Tile::Element* panels) {
    const int64_t panel_size = packed_a_size<Tile>(1, k), padded_rows = round_up(num_rows, Tile::kRows);
    for_each_square<Tile>(a, padded_rows, k, [&](int64_t row, int64_t begin) {
        const auto square = load_square<typename Tile::Words, RowsAre::Lanes>(starting_at(a, row, begin),
                                                                              num_rows - row, k - begin);
        for (int64_t i = row; i < row + kLanes && i < padded_rows; ++i) {
            auto* to =
                panels + i / Tile::kRows * panel_size + begin * Tile::kRows + i % Tile::kRows * Tile::kDepth;
            store(reinterpret_cast<float*>(to), square.rows[i - row]);
        }
    });
}

/// Packs k by num_columns elements of B into panels of Tile::kColumns columns, one panel after the other.
template <class Tile, class T>
void pack_b(const Operand<T>& b, int64_t num_columns, int64_t k, typename Tile::Element* panels) {
    using Words = typename Tile::Words;
    const int64_t panel_size = packed_b_size<Tile>(1, k);
    for_each_square<Tile>(b, round_up(num_columns, Tile::kColumns), k, [&](int64_t column, int64_t begin) {
        auto* panel =
            panels + column / Tile::kColumns * panel_size + column % Tile::kColumns * Words::kElements;
        const auto square = load_square<Words, RowsAre::Words>(starting_at(b, column, begin),
                                                               num_columns - column, k - begin);
        for (int i = 0; i < kLanes; ++i) {
            auto* to = panel + (begin + i * Words::kElements) * Tile::kColumns;
            store(reinterpret_cast<float*>(to), square.rows[i]);
        }
    });
}

}  // namespace argosy::kernels::ARGOSY_VARIANT
