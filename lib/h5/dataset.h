// Datasets, and what files and datasets have in common: an open handle, a name for messages, and attributes.
// HDF5 creates and locates datasets; large ones are then read and written by pread, pwrite or mmap at their
// offset, from any thread and without HDF5. Debian's HDF5 is not thread safe: every call into this module,
// destructors included, comes from one thread.
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

// Private to this module: HDF5's failures as errors of this program.

static_assert(std::is_same_v<hid_t, int64_t> && std::is_same_v<herr_t, int>,
              "h5/dataset.h assumes HDF5 1.10 or later");

/// Call it before the first call into HDF5. HDF5's failures then go into this program's errors, not to
/// stderr. HDF5 also does nothing at exit, where it would crash over a file whose closing failed (a full
/// disk). Data of files that are still open at exit is lost.
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

    /// Closes now, for callers that must know the result: negative on failure. The handle is empty
    /// afterwards.
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
// memory. HDF5 never converts them: its bf16 conversion is slow and rounds wrongly.

/// The name in messages and file listings: "u16". REQUIRES, as all functions here: a type of datasets.
const char* name(ElementType type);

/// The order in which files list types: that of the names above.
struct FileOrder {
    bool operator()(ElementType a, ElementType b) const;
};

/// Empty when no type has this name.
std::optional<ElementType> element_type_named(std::string_view name);

/// The bits of a missing element, in the low bytes: a quiet NaN, or 0 for integers.
uint64_t missing_element(ElementType type);

/// HDF5's type for `type`. HDF5 1.10 lacks bf16 and f16, so they are made as HDF5 floats with the right
/// fields; later versions recognise these as their own types.
Handle file_type(ElementType type);

/// The ElementType of an HDF5 type; empty when there is none (another width, big-endian, a string).
std::optional<ElementType> element_type(const Handle& type);

/// Shape, element type, and the offset of the bytes. A Dataset comes from its File and must be destroyed
/// before the File closes.
class Dataset : public Object {
  public:
    const std::vector<int64_t>& shape() const { return shape_; }
    int64_t num_elements() const;

    /// Empty when the element type is none of those above.
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
