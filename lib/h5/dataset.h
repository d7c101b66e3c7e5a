// One dataset: shape, element type, and the offset of its bytes. HDF5 creates and locates datasets; large
// ones are then read and written by pread, pwrite or mmap at `offset`, from any thread and without HDF5. A
// Dataset comes from its File and must be destroyed before the File closes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "h5/element_type.h"
#include "h5/object.h"

namespace argosy::h5 {

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
