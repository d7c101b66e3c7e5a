// HDF5's identifiers and failures. Private to this room: other rooms use files (h5/file.h) and datasets
// (h5/dataset.h), which hold Handles. HDF5's own header stays out of this room's headers: its hid_t is an
// int64_t, its herr_t an int.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace argosy::h5 {

/// Must be called before the first call into HDF5. Afterwards HDF5 prints no failures to stderr; check()
/// throws them. HDF5 also does nothing at exit, where it would crash over a file that could not be closed (a
/// full disk). Data of files that are still open at exit is lost.
void start_library();

/// HDF5's text about the call that just failed, from the function that detected the failure. Clears HDF5's
/// error stack.
std::string take_error_text();

/// Throws "<place>: cannot <action>: <HDF5's text>" for a call that failed to read a file: RunError if the
/// system failed, else DamageError, because HDF5 does not understand the bytes.
[[noreturn]] void refuse_read(std::string_view action, std::string_view place);
/// The same for a text that the caller has taken with take_whole_error_text().
[[noreturn]] void refuse_read(std::string_view action, std::string_view place, const std::string& whole_text);
std::string take_whole_error_text();

/// Returns the result of an HDF5 call, or throws "<place>: cannot <action>: <HDF5's text>" if it is negative.
template <class Result>
Result check(Result result, std::string_view action, std::string_view place) {
    if (result < 0) throw RunError("{}: cannot {}: {}", place, action, take_error_text());
    return result;
}

/// Returns the result of an HDF5 call that reads a file, or throws as refuse_read() does if it is negative.
template <class Result>
Result check_read(Result result, std::string_view action, std::string_view place) {
    if (result < 0) refuse_read(action, place);
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

}  // namespace argosy::h5
