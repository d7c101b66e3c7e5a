// Code that the forward and the backward pass of attention share. Blocks of scores are computed transposed,
// in strips. A strip has a row for each key and a column for each of Tile::kColumns queries. The softmax of a
// query therefore runs along a lane, without sums across lanes, and a strip of weights is already a panel of
// B for the product that sums over keys.
#pragma once

#include "kernels/attention.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/tile.h"
#include "kernels/scratch.h"

namespace argosy::kernels::ARGOSY_VARIANT {

inline constexpr int64_t kBlock = kAttentionBlock;

inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/// Divides memory into arrays that are aligned to 64 bytes. An Arena with null memory only counts bytes.
class Arena {
  public:
    explicit Arena(void* memory) : memory_(static_cast<char*>(memory)) {}
    template <class Element>
    Element* allocate(int64_t count) {
        char* const array = memory_ == nullptr ? nullptr : memory_ + size_bytes_;
        size_bytes_ += round_up(count * static_cast<int64_t>(sizeof(Element)), 64);
        return reinterpret_cast<Element*>(array);
    }
    int64_t size_bytes() const { return size_bytes_; }

  private:
    char* memory_;
    int64_t size_bytes_ = 0;
};

/// Calls allocate_arrays(arena) twice: first to count the bytes, then with the thread's scratch memory.
template <class AllocateArrays>
void allocate_in_scratch(AllocateArrays allocate_arrays) {
    Arena counter(nullptr);
    allocate_arrays(counter);
    Arena arena(scratch(counter.size_bytes()));
    allocate_arrays(arena);
}

/// Lengths that follow from a shape and a tile.
template <class Tile>
struct Extents {
    static constexpr int64_t kStrips = kBlock / Tile::kColumns;  // strips in a block of queries
    static constexpr int64_t kPanelRows = round_up(kBlock, Tile::kRows);
    static_assert(kBlock % Tile::kColumns == 0 && Tile::kColumns % Tile::kDepth == 0);
    static_assert(Tile::kRows <= 32 && kLanes <= 16, "AttentionShape::size_of_sums() has room for these");

    explicit Extents(const AttentionShape& shape)
        : num_blocks((shape.num_keys + kBlock - 1) / kBlock),
          depth(round_up(shape.head_dim, Tile::kDepth)),
          columns(round_up(shape.head_dim, Tile::kColumns)),
          rows(round_up(round_up(shape.head_dim, Tile::kRows), kLanes)) {}

    int64_t num_blocks;
    // head_dim, padded: as k of a product, as columns of B, and as rows of A.
    int64_t depth, columns, rows;
};

/// exp(x) for x <= 0, or above 0 by a rounding error. The result is exactly 0 below -87.7, and NaN for NaN.
/// The relative error lies below the rounding of T: 1e-4 if T has 16 bits, else 2e-8 plus fp32's own
/// rounding.
template <class T>
inline Vector exponential_to_zero(Vector x) {
    const Vector clamped = max(set(-88.03f), x);  // n becomes -127, and power_of_two(-127) is 0
    const Vector n = round_to_integer(clamped * set(1.44269504f));
    const Vector r = multiply_add(n, set(-0.693147181f), clamped);
    Vector p;
    if constexpr (sizeof(T) == 2) {
        p = multiply_add(set(1.65180206e-1f), r, set(5.04131162e-1f));
        p = multiply_add(p, r, set(1.00019588f));
    } else {
        p = multiply_add(set(1.38436590e-3f), r, set(8.37415742e-3f));
        p = multiply_add(p, r, set(4.16680021e-2f));
        p = multiply_add(p, r, set(1.66664312e-1f));
        p = multiply_add(p, r, set(4.99999942e-1f));
        p = multiply_add(p, r, set(1.0f));
    }
    return multiply_add(p, r, set(1.0f)) * power_of_two(n);
}

/// Products of packed queries must still be multiplied by this factor to become scores. The factor is 1 for
/// float queries, which pack_queries() scales. Their scores are then rounded once, in the same way in both
/// passes: for scores in the thousands, another rounding would be too large beside the difference from
/// log_sum_exp. bf16 queries are not scaled when they are packed, because rounding them to bf16 again would
/// cost precision.
template <class Tile>
float scale_of_scores(const AttentionShape& shape) {
    return Tile::Words::kElements == 1 ? 1.0f : shape.scale;
}

/// Packs a block's queries into panels of B, with k = head_dim.
template <class Tile, class T>
void pack_queries(const Operand<T>& queries, int64_t num_queries, const AttentionShape& shape,
                  typename Tile::Element* panels) {
    pack_b<Tile>(queries, num_queries, shape.head_dim, panels);
    if constexpr (Tile::Words::kElements == 1) {
        const int64_t size = packed_b_size<Tile>(num_queries, shape.head_dim);
        for (int64_t i = 0; i < size; i += kLanes) store(panels + i, load(panels + i) * set(shape.scale));
    }
}

/// The number of a strip's rows that a product over keys needs: the keys of the block up to the last query of
/// the strip. `place`: that of the strip's first query among the keys.
template <class Tile>
int64_t keys_of_strip(int64_t place, int64_t first_key, int64_t num_keys) {
    return round_up(smaller(num_keys, place + Tile::kColumns - first_key), Tile::kDepth);
}

/// Panels of A, one after the other.
template <class Tile>
struct Panels {
    const typename Tile::Element* data;
    int64_t panel_size;
};

/// C = A B, or C += A B, for the first num_rows rows of A and one panel of B. C has kColumns columns, and is
/// undefined from row num_rows to the end of the last tile.
template <class Tile>
void multiply_strip(int64_t num_rows, int64_t k, Panels<Tile> a, const void* b, float* c, bool accumulate) {
    for (int64_t row = 0; row < num_rows; row += Tile::kRows, a.data += a.panel_size) {
        Tile::multiply_first(smaller(Tile::kRows, num_rows - row), k, a.data,
                             static_cast<const typename Tile::Element*>(b), c + row * Tile::kColumns,
                             Tile::kColumns, accumulate);
    }
}

/// Writes minus infinity for keys that a query does not see, and in rows past the block's keys. The strip's
/// first column is `first_query`.
template <class Tile>
void mask_strip(float* strip, const AttentionShape& shape, int64_t first_query, int64_t first_key,
                int64_t num_keys, int64_t num_rows) {
    // 1. keys after the query's place, row by row
    const int64_t place = shape.query_offset + first_query;
    for (int64_t row = larger(0, smaller(num_keys, place - first_key + 1)); row < num_rows; ++row) {
        const int64_t earlier = row < num_keys ? first_key + row - place : Tile::kColumns;
        for (int64_t column = 0; column < smaller(earlier, Tile::kColumns); ++column) {
            strip[row * Tile::kColumns + column] = -__builtin_inff();
        }
    }
    // 2. keys before the first one that the query sees, column by column
    const int64_t num_columns = smaller(Tile::kColumns, shape.num_queries - first_query);
    for (int64_t column = num_columns - 1; column >= 0; --column) {
        const int64_t end = smaller(num_rows, shape.first_key(first_query + column) - first_key);
        if (end <= 0) break;  // earlier queries see no fewer keys
        for (int64_t row = 0; row < end; ++row) strip[row * Tile::kColumns + column] = -__builtin_inff();
    }
}

/// Turns a strip's num_rows rows into a panel of B, in place.
template <class Tile>
void round_to_panel(float* strip, int64_t num_rows) {
    using Words = typename Tile::Words;
    if constexpr (Words::kElements == 1) return;
    for (int64_t word = 0; word < num_rows / Words::kElements; ++word) {
        for (int64_t column = 0; column < Tile::kColumns; column += kLanes) {
            const float* from = strip + word * Words::kElements * Tile::kColumns + column;
            store(strip + word * Tile::kColumns + column, Words::along_lanes(from, Tile::kColumns));
        }
    }
}

/// Writes num_tokens rows of num_columns elements from their transpose, which has a column for each token,
/// and multiplies each token by its factor.
template <class T>
void write_transposed(const float* transposed, int64_t stride, const float* factors, int64_t num_tokens,
                      int64_t num_columns, TokenRows<T> to) {
    for (int64_t token = 0; token < num_tokens; token += kLanes) {
        const Vector factor = load(factors + token);
        for (int64_t column = 0; column < num_columns; column += kLanes) {
            Square square;
            for (int i = 0; i < kLanes; ++i) {
                square.rows[i] = load(transposed + (column + i) * stride + token) * factor;
            }
            transpose(square);
            for (int i = 0; i < smaller(kLanes, num_tokens - token); ++i) {
                T* const row = to.data + (token + i) * to.stride + column;
                if (column + kLanes <= num_columns) {
                    store(row, square.rows[i]);
                } else {
                    store_first(row, square.rows[i], num_columns - column);
                }
            }
        }
    }
}

}  // namespace argosy::kernels::ARGOSY_VARIANT
