// bf16 in pairs: an instruction computes two products in each lane, where floats have one. The tests also run
// this tile with the instruction emulated, as Intel documents it (tests/kernels).
#pragma once

#include <type_traits>

#include "kernels/cpu/vector_tile.h"

namespace argosy::kernels::ARGOSY_VARIANT {

/// vdpbf16ps: adds the product of the high halves and rounds, then adds the product of the low halves and
/// rounds. Subnormals count as zero.
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
