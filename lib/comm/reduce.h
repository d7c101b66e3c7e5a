// Sums and maxima over the buffers of several ranks, in a fixed order.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/communicator.h"

namespace argosy::comm {

/// out = sources[0] + sources[1] + ..., added in this order, so that every rank gets the same bits. Elements
/// of two bytes are summed in fp32 and rounded once, to nearest even. `out` may be one of the sources.
/// REQUIRES: can_reduce(type).
void reduce(std::byte* out, std::span<const std::byte* const> sources, int64_t bytes, at::ScalarType type,
            Reduction reduction);

bool can_reduce(at::ScalarType type);

}  // namespace argosy::comm
