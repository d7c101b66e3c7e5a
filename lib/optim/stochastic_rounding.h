// Stochastic rounding of fp32 to bf16: up or down at random, so that the average result is exact. An update
// is kept on average, however small it is compared with the weight. The random bits are a function of the
// seed, the parameter, the element and the step: all layouts round alike, and a resumed run repeats the bits.
//
// Element g of a whole tensor, counted row-major, takes 16 bits b: the low half (even g) or high half (odd g)
// of word g % 8 / 2 of Philox4x32-10(counter = (g / 8, step), key). The result is the upper half of bits(x) +
// b in integers. x is rounded away from zero with the probability (low half of bits(x)) / 2^16. Values that
// bf16 can represent, infinities and NaN do not change.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string_view>

#include "layout/param_spec.h"

namespace argosy::optim {

/// The rounded tensor of a parameter. Each of the three has its own random bits.
enum class Rounded : uint32_t { Weight, FirstMoment, SecondMoment };

using RoundingKey = std::array<uint32_t, 2>;
RoundingKey rounding_key(uint64_t seed, std::string_view parameter, Rounded what);

/// Returns `wide` (fp32) in bf16. `rows` maps its elements to elements of the whole parameter.
at::Tensor rounded_stochastically(const at::Tensor& wide, const layout::SlabRows& rows, uint64_t step,
                                  const RoundingKey& key);

}  // namespace argosy::optim
