// AVX-512 has 32 registers: 28 for sums, two for B, one for A.
#pragma once

#include "kernels/cpu/vector_tile.h"

namespace argosy::kernels::ARGOSY_VARIANT {

using FloatTile = VectorTile<FloatWords, MultiplyAdd, 14, 2>;

template <class T>
using TileOf = FloatTile;

}  // namespace argosy::kernels::ARGOSY_VARIANT
