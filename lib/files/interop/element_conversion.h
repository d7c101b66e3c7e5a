// Converts elements between floating-point types. Widening is exact. Narrowing rounds once, to nearest, ties
// to even.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/element_type.h"

namespace argosy::interop {

/// Copies bit for bit if the types are equal. REQUIRES: the types are equal, or both are f64, f32, f16 or
/// bf16; `out` has exactly the size of the result; both spans begin at a multiple of 8 bytes.
void convert_elements(ElementType from, std::span<const std::byte> in, ElementType to,
                      std::span<std::byte> out);

/// The number of elements that are infinite or NaN.
int64_t num_not_finite(ElementType type, std::span<const std::byte> elements);

}  // namespace argosy::interop
