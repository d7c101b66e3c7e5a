// An HDF5 identifier together with the function that closes it. Move-only: exactly one Handle owns an
// identifier. HDF5's own headers stay out of this module's headers: its hid_t is an int64_t, its herr_t an
// int.
#pragma once

#include <cstdint>
#include <utility>

namespace argosy::h5 {

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

}  // namespace argosy::h5
