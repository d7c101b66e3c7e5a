// Tiles: the small products of panels that matrix products and attention are made of. TileOf<T> is the tile
// for operands of type T; code that uses it is written over any Tile:
//
// - Tile::kRows, Tile::kColumns: of C, which one call computes whole. The caller cuts off what is padding.
// - Tile::Element: of panels; float, or BFloat16 where the processor multiplies pairs of them.
// - Tile::kDepth: k of a panel is padded with zeros to a multiple of it.
// - Tile::Session: one lives on the calling thread, around every multiply. Sessions do not nest, and nothing
//   throws while one lives: take scratch() first.
// - Tile::multiply(k, a_panel, b_panel, c, c_stride, accumulate): C = A B, or C += A B, of floats
//   c[row * c_stride + column], summed in fp32 over k in one order whatever surrounds the tile. k need not be
//   padded. REQUIRES: k > 0.
// - Tile::kReadsInPlace: whether there is multiply_in_place, which reads rows of A where they lie, of whole
//   kDepths.
//
// A panel of A is [k / kDepth][kRows][kDepth]: rows keep kDepth elements together, so that a row whose k lies
// in memory order, or is computed in vectors, is stored as it comes. A panel of B is [k / n][kColumns][n]
// with n elements to a 32-bit word: 1 or 2. pack_a and pack_b (cpu/pack.h) fill panels from any Operand.
#pragma once

#include ARGOSY_TILE_HEADER
