// The types that our datasets are made of, little-endian on disk and in memory alike. HDF5 never converts
// them: its bf16 conversion is slow and rounds wrongly.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "h5/handle.h"

namespace argosy::h5 {

enum class ElementType { U8, U16, U32, I64, F16, BF16, F32, F64 };

int64_t size_bytes(ElementType type);

/// As messages and file listings spell it: "u16".
const char* name(ElementType type);

/// Nothing when no type is spelled so.
std::optional<ElementType> element_type_named(std::string_view name);

/// What stands for an element that is missing: a quiet NaN, or 0 in integers. Its bytes come first.
uint64_t missing_element(ElementType type);

/// HDF5's type of that kind. bf16 and f16, which HDF5 1.10 lacks, are HDF5 floats with their fields: later
/// versions take them for their own.
Handle file_type(ElementType type);

/// The kind of an HDF5 type; nothing when it is none of ours (another width, big-endian, a string).
std::optional<ElementType> element_type(const Handle& type);

}  // namespace argosy::h5
