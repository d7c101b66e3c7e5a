// Elements of one floating-point type as another's: widening is exact, narrowing rounds once, to nearest,
// ties to even.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "h5/element_type.h"

namespace argosy::interop {

/// f64, f32, bf16 and f16.
bool is_floating(h5::ElementType type);

/// Equal types are copied, bit for bit. REQUIRES: types that are equal or both floating; room for exactly as
/// many elements; both begin at a multiple of 8 bytes.
void convert_elements(h5::ElementType from, std::span<const std::byte> in, h5::ElementType to,
                      std::span<std::byte> out);

/// Elements that are infinite or no number.
int64_t num_not_finite(h5::ElementType type, std::span<const std::byte> elements);

}  // namespace argosy::interop
