// Conversion of elements between floating-point types: widening is exact; narrowing rounds once, to nearest,
// ties to even.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/element_type.h"

namespace argosy::interop {

/// Copies bit for bit if the types are equal. REQUIRES: the types are equal or both floating; `out` has room
/// for exactly as many elements; both spans begin at a multiple of 8 bytes.
void convert_elements(ElementType from, std::span<const std::byte> in, ElementType to,
                      std::span<std::byte> out);

/// The number of elements that are infinite or NaN.
int64_t num_not_finite(ElementType type, std::span<const std::byte> elements);

}  // namespace argosy::interop
