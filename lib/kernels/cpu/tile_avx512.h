// 32 registers: 28 sums, two of B, one of A.
#pragma once

#include "kernels/cpu/vector_tile.h"

namespace argosy::kernels::ARGOSY_VARIANT {

using FloatTile = VectorTile<FloatWords, MultiplyAdd, 14, 2>;

template <class T>
using TileOf = FloatTile;

}  // namespace argosy::kernels::ARGOSY_VARIANT
