// Rounding fp32 to bf16 up or down at random, so that what an update adds is kept on average, however small
// it is beside the weight. The randomness is a function of the element, not of where or when it is computed:
// every layout rounds alike, and a resumed run repeats it.
//
// Element g of a whole tensor, counted row-major, takes 16 bits b: the low half (even g) or high half (odd g)
// of word g % 8 / 2 of Philox4x32-10(counter = (g / 8, step), key). The result is the upper half of bits(x) +
// b in integers: the neighbour away from zero with the probability of the part that is cut off. What bf16
// holds stays as it is, and so does what is not finite.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string_view>

#include "layout/param_spec.h"

namespace argosy::optim {

/// What is rounded of a parameter; each has its own randomness.
enum class Rounded : uint32_t { Weight, FirstMoment, SecondMoment };

using RoundingKey = std::array<uint32_t, 2>;
RoundingKey rounding_key(uint64_t seed, std::string_view parameter, Rounded what);

/// `wide` (fp32) in bf16. `rows` says which elements of the whole tensor these are.
at::Tensor rounded_stochastically(const at::Tensor& wide, const layout::SlabRows& rows, uint64_t step,
                                  const RoundingKey& key);

}  // namespace argosy::optim
