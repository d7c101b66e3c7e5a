// A tile is a small product of two panels; matrix products and attention consist of tiles. TileOf<T> is the
// tile for operands of type T. Every Tile has:
//
// - Tile::kRows, Tile::kColumns: the size of the part of C that one call computes. The caller discards
//   padding.
// - Tile::Element: the type of elements in panels: float, or BFloat16 where the CPU multiplies pairs of bf16.
// - Tile::kDepth: panels are padded with zeros along k to a multiple of kDepth.
// - Tile::Session: an object that exists on the calling thread while it calls multiply. Sessions do not nest.
//   Nothing may throw during a session, so scratch() is called before.
// - Tile::multiply(k, a_panel, b_panel, c, c_stride, accumulate): C = A B, or C += A B if `accumulate`. C has
//   the floats c[row * c_stride + column]. Sums over k are fp32, in one order, for every part of C. k may be
//   any number above 0; panels have the padding.
// - Tile::multiply_first(num_rows, ...): the same, but only the first num_rows rows of C need be right.
// - Tile::kReadsInPlace: whether there is a multiply_in_place, which reads rows of A that are not packed.
//   REQUIRES: k is a multiple of kDepth.
//
// A panel of A is [k / kDepth][kRows][kDepth]. Each row keeps kDepth elements together, so that a row that is
// contiguous along k, or computed in vectors, is stored unchanged.
//
// A panel of B is [k / n][kColumns][n], where n is the number of elements in a 32-bit word, 1 or 2. pack_a
// and pack_b (cpu/pack.h) fill panels from any Operand.
#pragma once

#ifdef ARGOSY_TILE_HEADER
#include ARGOSY_TILE_HEADER
#else
#include "kernels/cpu/vector_tile.h"

namespace argosy::kernels::ARGOSY_VARIANT {

template <class T>
using TileOf = VectorTile<FloatWords, MultiplyAdd, Vector::kTileRows, Vector::kTileVectors>;

}  // namespace argosy::kernels::ARGOSY_VARIANT
#endif
