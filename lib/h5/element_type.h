// The element types of this program's datasets, little-endian on disk and in memory. HDF5 never converts
// them: its bf16 conversion is slow and rounds wrongly.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "h5/handle.h"

namespace argosy::h5 {

enum class ElementType { U8, U16, U32, I64, F16, BF16, F32, F64 };

int64_t size_bytes(ElementType type);

/// The name in messages and file listings: "u16".
const char* name(ElementType type);

/// Empty when no type has this name.
std::optional<ElementType> element_type_named(std::string_view name);

/// The bits of a missing element, in the low bytes: a quiet NaN, or 0 for integers.
uint64_t missing_element(ElementType type);

/// HDF5's type for `type`. HDF5 1.10 lacks bf16 and f16, so they are made as HDF5 floats with the right
/// fields; later versions recognise these as their own types.
Handle file_type(ElementType type);

/// The ElementType of an HDF5 type; empty when there is none (another width, big-endian, a string).
std::optional<ElementType> element_type(const Handle& type);

}  // namespace argosy::h5
