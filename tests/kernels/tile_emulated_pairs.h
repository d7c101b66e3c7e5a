// tile_avx512_bf16.h with vdpbf16ps in plain C++.
#pragma once

#include <cstring>
#include <type_traits>

#include "kernels/cpu/vector_tile.h"
#include "kernels/emulated_arithmetic.h"

namespace argosy::kernels::ARGOSY_VARIANT {

struct EmulatedPairDot {
    static Vector dot(Vector sum, Vector a, Vector b) {
        float sums[kLanes];
        BFloat16 pairs_a[kLanes][2], pairs_b[kLanes][2];
        std::memcpy(sums, &sum, sizeof sums);
        std::memcpy(pairs_a, &a, sizeof pairs_a);
        std::memcpy(pairs_b, &b, sizeof pairs_b);
        for (int i = 0; i < kLanes; ++i) {
            sums[i] = multiply_add_flushed(pairs_a[i][1], pairs_b[i][1], sums[i]);
            sums[i] = multiply_add_flushed(pairs_a[i][0], pairs_b[i][0], sums[i]);
        }
        return load(sums);
    }
};

using FloatTile = VectorTile<FloatWords, MultiplyAdd, 14, 2>;
using PairTile = VectorTile<PairWords, EmulatedPairDot, 14, 2>;

template <class T>
using TileOf = std::conditional_t<std::is_same_v<T, BFloat16>, PairTile, FloatTile>;

}  // namespace argosy::kernels::ARGOSY_VARIANT
