// HDF5 datasets, and the base class of files and datasets, which has an open handle, a name for messages, and
// attributes. HDF5 creates and locates datasets. Large datasets are then read and written at their offset in
// the file by pread, pwrite or mmap, from any thread and without HDF5. Debian's HDF5 is not thread-safe: all
// calls into this room, destructors included, must come from one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "h5/element_type.h"
#include "h5/handle.h"

namespace argosy::h5 {

class Object {
  public:
    /// The name in messages: "F.h5", "F.h5: dataset 'tokens'".
    const std::string& place() const { return place_; }

    void set_attribute(const std::string& name, int64_t value);
    void set_attribute(const std::string& name, std::string_view value);

    /// UserError when the attribute is absent or of another kind.
    int64_t integer_attribute(const std::string& name) const;
    std::string string_attribute(const std::string& name) const;

  protected:
    Object(Handle handle, std::string place) : handle_(std::move(handle)), place_(std::move(place)) {}

    Handle handle_;
    std::string place_;

  private:
    void write_attribute(const std::string& name, const Handle& type, const void* value);
    Handle open_attribute(const std::string& name) const;
};

/// The shape, the element type, and the offset of a dataset's bytes. A File makes Dataset objects, which must
/// be destroyed before the File closes.
class Dataset : public Object {
  public:
    const std::vector<int64_t>& shape() const { return shape_; }
    int64_t num_elements() const;

    /// Empty when the element type is not one of the eight of h5/element_type.h.
    std::optional<ElementType> type() const { return type_; }

    /// Whether the bytes are one run in this file, rather than chunked, compact, virtual or external.
    bool contiguous() const;

    /// Bytes from the file's start to the first element. REQUIRES: contiguous(), and at least one element.
    int64_t offset() const;

    /// Writes or reads the whole dataset through HDF5, which suits small datasets. REQUIRES: `elements` has
    /// exactly the dataset's size.
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
