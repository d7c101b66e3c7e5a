// The element types of datasets: u8, u16, u32, i64, f16, bf16, f32 and f64, little-endian on disk and in
// memory. HDF5 never converts elements, because its bf16 conversion is slow and rounds wrongly. REQUIRES, for
// all functions: an ElementType argument is one of these eight.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/element_type.h"

namespace argosy::h5 {

/// The name in messages and file listings, such as "u16".
const char* name(ElementType type);

/// Orders types as the list above does. Files list types in this order.
struct FileOrder {
    bool operator()(ElementType a, ElementType b) const;
};

/// Empty when no type has this name.
std::optional<ElementType> element_type_named(std::string_view name);

/// The bits of a missing element, in the low bytes: a quiet NaN, or 0 for integers.
uint64_t missing_element(ElementType type);

// Private to this room.

class Handle;

/// Returns HDF5's type for `type`. HDF5 1.10 has no bf16 and f16: both are built as HDF5 floats with the same
/// bit fields, which later versions recognise as their own bf16 and f16.
Handle file_type(ElementType type);

/// Returns the ElementType of an HDF5 type. Empty for any other type, such as another width, big-endian or a
/// string.
std::optional<ElementType> element_type(const Handle& type);

}  // namespace argosy::h5
