// bf16 in pairs: two products where a float takes one. On a processor without vdpbf16ps, tests run this tile
// with a function that does the same by its documentation (tests/kernels).
#pragma once

#include <type_traits>

#include "kernels/cpu/vector_tile.h"

namespace argosy::kernels::ARGOSY_VARIANT {

/// Adds the product of the high halves, rounds, adds that of the low halves, rounds; subnormals count as
/// zero.
struct PairDot {
    static Vector dot(Vector sum, Vector a, Vector b) {
        return {_mm512_dpbf16_ps(sum.lanes, (__m512bh)a.lanes, (__m512bh)b.lanes)};
    }
};

using FloatTile = VectorTile<FloatWords, MultiplyAdd, 14, 2>;
using PairTile = VectorTile<PairWords, PairDot, 14, 2>;

template <class T>
using TileOf = std::conditional_t<std::is_same_v<T, BFloat16>, PairTile, FloatTile>;

}  // namespace argosy::kernels::ARGOSY_VARIANT
