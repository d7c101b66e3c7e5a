// HDF5 datasets, and the base class of files and datasets, which has an open handle, a name for messages, and
// attributes. HDF5 creates and locates datasets. Large datasets are then read and written at their offset in
// the file by pread, pwrite or mmap, from any thread and without HDF5. Debian's HDF5 is not thread-safe: all
// calls into this module, destructors included, must come from one thread.
#pragma once

#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/element_type.h"
#include "base/error.h"

namespace argosy::h5 {

// Private to this module: throws HDF5's failures as errors of this program.

static_assert(std::is_same_v<hid_t, int64_t> && std::is_same_v<herr_t, int>,
              "h5/dataset.h assumes HDF5 1.10 or later");

/// Must be called before the first call into HDF5. Afterwards HDF5 prints no failures to stderr; check()
/// throws them. HDF5 also does nothing at exit, where it would crash over a file that could not be closed (a
/// full disk). Data of files that are still open at exit is lost.
void start_library();

/// HDF5's text about the call that just failed, from the function that detected the failure. Clears HDF5's
/// error stack.
std::string take_error_text();

/// Returns the result of an HDF5 call, or throws "<place>: cannot <action>: <HDF5's text>" if it is negative.
template <class Failure = RunError, class Result>
Result check(Result result, std::string_view action, std::string_view place) {
    if (result < 0) throw Failure("{}: cannot {}: {}", place, action, take_error_text());
    return result;
}

/// An HDF5 identifier together with the function that closes it. Move-only: exactly one Handle owns an
/// identifier.
class Handle {
  public:
    using Close = int (*)(int64_t id);

    Handle(int64_t id, Close closer) : id_(id), close_(closer) {}
    Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, kNone)), close_(other.close_) {}
    Handle& operator=(Handle&& other) noexcept {
        std::swap(id_, other.id_);
        std::swap(close_, other.close_);
        return *this;
    }
    ~Handle() { close(); }

    int64_t id() const { return id_; }

    /// Closes now and returns HDF5's result, which is negative on failure. The handle is empty afterwards.
    int close() { return id_ < 0 ? 0 : close_(std::exchange(id_, kNone)); }

  private:
    static constexpr int64_t kNone = -1;
    int64_t id_;
    Close close_;
};

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

// The element types of datasets are u8, u16, u32, i64, f16, bf16, f32 and f64, little-endian on disk and in
// memory. HDF5 never converts elements, because its bf16 conversion is slow and rounds wrongly. REQUIRES, for
// all functions below: an ElementType argument is one of these eight.

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

/// Returns HDF5's type for `type`. HDF5 1.10 has no bf16 and f16: both are built as HDF5 floats with the same
/// bit fields, which later versions recognise as their own bf16 and f16.
Handle file_type(ElementType type);

/// Returns the ElementType of an HDF5 type. Empty for any other type, such as another width, big-endian or a
/// string.
std::optional<ElementType> element_type(const Handle& type);

/// The shape, the element type, and the offset of a dataset's bytes. A File makes Dataset objects, which must
/// be destroyed before the File closes.
class Dataset : public Object {
  public:
    const std::vector<int64_t>& shape() const { return shape_; }
    int64_t num_elements() const;

    /// Empty when the element type is not one of the eight above.
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
