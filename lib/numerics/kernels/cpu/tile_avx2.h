// AVX2 has 16 registers: 12 for sums, two for B, one for A.
#pragma once

#include "kernels/cpu/vector_tile.h"

namespace argosy::kernels::ARGOSY_VARIANT {

using FloatTile = VectorTile<FloatWords, MultiplyAdd, 6, 2>;

template <class T>
using TileOf = FloatTile;

}  // namespace argosy::kernels::ARGOSY_VARIANT
