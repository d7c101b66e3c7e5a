// The types that our datasets are made of, little-endian on disk and in memory alike. HDF5 never converts
// them: its bf16 conversion is slow and rounds wrongly.
#pragma once

#include <cstdint>
#include <optional>

#include "h5/handle.h"

namespace argosy::h5 {

enum class ElementType { U16, U32, I64, F32, F64, BF16 };

int64_t size_bytes(ElementType type);

/// As messages and file listings spell it: "u16".
const char* name(ElementType type);

/// HDF5's type of that kind. bf16, which HDF5 1.10 lacks, is an HDF5 float with bf16's fields: HDF5 2.0 takes
/// it for its own.
Handle file_type(ElementType type);

/// The kind of an HDF5 type; nothing when it is none of ours (another width, big-endian, a string).
std::optional<ElementType> element_type(const Handle& type);

}  // namespace argosy::h5
