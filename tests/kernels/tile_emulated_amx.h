// tile_amx.h with its instructions in plain C++.
#pragma once

#include <type_traits>

#include "kernels/cpu/vector_tile.h"
#include "kernels/emulated_matrix_unit.h"

namespace argosy::kernels::ARGOSY_VARIANT {

using FloatTile = VectorTile<FloatWords, MultiplyAdd, 14, 2>;

template <class T>
using TileOf = std::conditional_t<std::is_same_v<T, BFloat16>, MatrixUnitTile<EmulatedAmx>, FloatTile>;

}  // namespace argosy::kernels::ARGOSY_VARIANT
