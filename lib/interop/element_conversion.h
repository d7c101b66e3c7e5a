// Conversion of elements between floating-point types: widening is exact; narrowing rounds once, to nearest,
// ties to even.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "h5/dataset.h"

namespace argosy::interop {

/// True for f64, f32, bf16 and f16.
bool is_floating(h5::ElementType type);

/// Copies bit for bit if the types are equal. REQUIRES: the types are equal or both floating; `out` has room
/// for exactly as many elements; both spans begin at a multiple of 8 bytes.
void convert_elements(h5::ElementType from, std::span<const std::byte> in, h5::ElementType to,
                      std::span<std::byte> out);

/// The number of elements that are infinite or NaN.
int64_t num_not_finite(h5::ElementType type, std::span<const std::byte> elements);

}  // namespace argosy::interop
