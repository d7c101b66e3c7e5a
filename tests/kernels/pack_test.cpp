// Panels of bf16 have each element where cpu/tile.h specifies it, bit for bit.
#include "kernels/cpu/pack.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/cpu/tile.h"
#include "kernels/emulated_arithmetic.h"

namespace argosy::kernels::ARGOSY_VARIANT {
namespace {

using Tile = TileOf<BFloat16>;

struct Layout {
    int64_t lane_stride, k_stride;
};

/// Arbitrary bits: signalling NaNs must not change.
std::vector<BFloat16> any_elements(int64_t count) {
    std::mt19937 engine(1);
    std::vector<BFloat16> elements(count);
    for (BFloat16& each : elements) each.bits = static_cast<uint16_t>(engine());
    return elements;
}

/// Compares all elements of the panels, padding included, with `from`; `place` maps an element to its
/// position.
template <class Place>
void expect_panels(const std::vector<BFloat16>& panels, int64_t padded_lanes, int64_t padded_k, int64_t lanes,
                   int64_t k, const Operand<BFloat16>& from, Place place) {
    for (int64_t lane = 0; lane < padded_lanes; ++lane) {
        for (int64_t i = 0; i < padded_k; ++i) {
            const bool inside = lane < lanes && i < k;
            const int expected = inside ? from.data[lane * from.lane_stride + i * from.k_stride].bits : 0;
            ASSERT_EQ(panels[place(lane, i)].bits, expected) << "lane " << lane << ", k " << i;
        }
    }
}

TEST(PackTest, EveryElementOfAPanelIsAtItsPosition) {
    for (const auto& [lanes, k] :
         {std::pair<int64_t, int64_t>{1, 1}, {31, 33}, {32, 32}, {70, 97}, {14, 64}}) {
        const int64_t padded_k = (k + 31) / 32 * 32;
        for (const Layout layout : {Layout{k, 1}, Layout{1, lanes}, Layout{3 * k, 3}}) {
            const auto elements = any_elements(3 * lanes * k);
            const Operand<BFloat16> from{elements.data(), layout.lane_stride, layout.k_stride};
            std::vector<BFloat16> panels(packed_a_size<Tile>(lanes, k), BFloat16{7});
            pack_a<Tile>(from, lanes, k, panels.data());
            const int64_t rows = Tile::kRows, padded_rows = (lanes + rows - 1) / rows * rows;
            expect_panels(panels, padded_rows, padded_k, lanes, k, from, [&](int64_t row, int64_t i) {
                return row / rows * rows * padded_k + i / 32 * rows * 32 + row % rows * 32 + i % 32;
            });

            panels.assign(packed_b_size<Tile>(lanes, k), BFloat16{7});
            pack_b<Tile>(from, lanes, k, panels.data());
            const int64_t padded_columns = (lanes + 31) / 32 * 32;
            expect_panels(panels, padded_columns, padded_k, lanes, k, from, [&](int64_t column, int64_t i) {
                return column / 32 * 32 * padded_k + i / 2 * 64 + column % 32 * 2 + i % 2;
            });
        }
    }
}

TEST(PackTest, FloatsAreRounded) {
    const int64_t lanes = 40, k = 70;
    std::mt19937 engine(1);
    std::vector<float> floats(lanes * k);
    std::vector<BFloat16> rounded(lanes * k), of_floats, of_rounded;
    for (int64_t i = 0; i < lanes * k; ++i) {
        floats[i] = std::normal_distribution<float>()(engine);
        const auto word = std::bit_cast<uint32_t>(floats[i]);
        rounded[i].bits = static_cast<uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16);
    }
    for (const Layout layout : {Layout{k, 1}, Layout{1, lanes}}) {
        for (auto* panels : {&of_floats, &of_rounded}) panels->assign(packed_a_size<Tile>(lanes, k), {});
        pack_a<Tile, float>({floats.data(), layout.lane_stride, layout.k_stride}, lanes, k, of_floats.data());
        pack_a<Tile, BFloat16>({rounded.data(), layout.lane_stride, layout.k_stride}, lanes, k,
                               of_rounded.data());
        ASSERT_EQ(std::memcmp(of_floats.data(), of_rounded.data(), 2 * of_floats.size()), 0);
    }
}

}  // namespace
}  // namespace argosy::kernels::ARGOSY_VARIANT
