// Tiles: the small products of panels that matrix products and attention are made of. TileOf<T> is the tile
// for operands of type T; code that uses it is written over any Tile:
//
// - Tile::kRows, Tile::kColumns: the part of C that one call computes, whole. The caller discards padding.
// - Tile::Element: the type in panels; float, or BFloat16 where the processor multiplies pairs of them.
// - Tile::kDepth: k of a panel is padded with zeros to a multiple of it.
// - Tile::Session: an object that lives on the calling thread around every multiply. Sessions do not nest,
//   and nothing throws while one lives: take scratch() first.
// - Tile::multiply(k, a_panel, b_panel, c, c_stride, accumulate): C = A B, or C += A B, of floats
//   c[row * c_stride + column], summed in fp32 over k in one order, whatever part of C the tile is. k need
//   not be padded. REQUIRES: k > 0.
// - Tile::kReadsInPlace: whether there is multiply_in_place, which reads rows of A that are not packed, for k
//   that is a multiple of kDepth.
//
// A panel of A is [k / kDepth][kRows][kDepth]: rows keep kDepth elements together, so that a row that is
// contiguous along k, or that is computed in vectors, is stored as it is.
// A panel of B is [k / n][kColumns][n] with n elements to a 32-bit word: 1 or 2. pack_a and pack_b
// (cpu/pack.h) fill panels from any Operand.
#pragma once

#include ARGOSY_TILE_HEADER
