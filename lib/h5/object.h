// The common part of files and datasets: an open handle, a name for messages, and attributes. Debian's HDF5
// is not thread safe: every call into this module, destructors included, comes from one thread.
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/error.h"

namespace argosy::h5 {

// Private to this module: HDF5's header, and its failures as errors of this program. Include it from h5/*.cpp
// only.

static_assert(std::is_same_v<hid_t, int64_t> && std::is_same_v<herr_t, int>,
              "h5/object.h assumes HDF5 1.10 or later");

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

// An HDF5 identifier together with the function that closes it. Move-only: exactly one Handle owns an
// identifier. HDF5's own headers stay out of this module's headers: its hid_t is an int64_t, its herr_t an
// int.

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

}  // namespace argosy::h5
