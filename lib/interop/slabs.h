// Cuts tensors into boxes of consecutive elements, counted row-major.
#pragma once

#include <cstdint>
#include <vector>

#include "layout/param_spec.h"

namespace argosy::interop {

/// Boxes of at most `most_elements` consecutive elements, in order. REQUIRES: most_elements > 0.
std::vector<layout::Slab> consecutive_blocks(const std::vector<int64_t>& shape, int64_t most_elements);

}  // namespace argosy::interop
