// The addition to a sum in bf16, one element at a time: the reference of the kernels that round
// stochastically.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/random.h"
#include "kernels/optimizer.h"

namespace argosy::kernels {

inline float widened(BFloat16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

/// `x` rounded with the random bits of element `element` of the whole parameter.
inline BFloat16 rounded(float x, uint64_t element, uint64_t number, const uint32_t (&key)[2]) {
    const auto half_words = [](uint64_t word) {
        return std::array{static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32)};
    };
    const auto [block_low, block_high] = half_words(element / 8);
    const auto [number_low, number_high] = half_words(number);
    const auto words = philox({block_low, block_high, number_low, number_high}, {key[0], key[1]});
    const uint32_t random = words[element % 8 / 2] >> (element % 2 * 16) & 0xFFFF;
    const auto bits = std::bit_cast<uint32_t>(x);
    return {static_cast<uint16_t>((std::isfinite(x) ? bits + random : bits) >> 16)};
}

/// Element i of the sum after the addition.
inline BFloat16 expected_sum(const AddRoundedRows& rows, int64_t i) {
    const AddRounded& args = rows.addition;
    const float total = args.accumulate ? widened(args.sum[i]) + args.term[i] : args.term[i];
    const auto row = i / rows.row_length, column = i % rows.row_length;
    return rounded(total, args.first_element + static_cast<uint64_t>(row * rows.row_stride + column),
                   *args.first_number + args.number, args.rounding_key);
}

}  // namespace argosy::kernels
