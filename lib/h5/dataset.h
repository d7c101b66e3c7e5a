// One dataset: shape, element type, and the offset of its bytes. HDF5 creates and locates datasets; large
// ones are then read and written by pread, pwrite or mmap at `offset`, from any thread and without HDF5. A
// Dataset comes from its File and must be destroyed before the File closes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "h5/object.h"

namespace argosy::h5 {

// The element types of this program's datasets, little-endian on disk and in memory. HDF5 never converts
// them: its bf16 conversion is slow and rounds wrongly.

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

class Dataset : public Object {
  public:
    const std::vector<int64_t>& shape() const { return shape_; }
    int64_t num_elements() const;

    /// Empty when the element type is not one of h5::ElementType.
    std::optional<ElementType> type() const { return type_; }

    /// Whether the bytes are one run in the file: not chunked, compact, virtual or external.
    bool contiguous() const;

    /// Bytes from the file's start to the first element. REQUIRES: contiguous(), and at least one element.
    int64_t offset() const;

    /// Transfers the whole dataset at once, for small ones. REQUIRES: exactly the dataset's bytes.
    void write(std::span<const std::byte> elements);
    void read(std::span<std::byte> elements) const;

  private:
    friend class File;
    Dataset(Handle handle, std::string place);
    int64_t own_type(size_t num_bytes) const;

    Handle type_handle_;
    std::optional<ElementType> type_;
    std::vector<int64_t> shape_;
};

}  // namespace argosy::h5
