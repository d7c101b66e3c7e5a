// SSE2 has 16 registers, two for each Vector: 8 for sums, two for B, two for A.
#pragma once

#include "kernels/cpu/vector_tile.h"

namespace argosy::kernels::ARGOSY_VARIANT {

using FloatTile = VectorTile<FloatWords, MultiplyAdd, 4, 1>;

template <class T>
using TileOf = FloatTile;

}  // namespace argosy::kernels::ARGOSY_VARIANT
