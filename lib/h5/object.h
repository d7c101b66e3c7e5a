// The common part of files and datasets: an open handle, a name for messages, and attributes. Debian's HDF5
// is not thread safe: every call into this module, destructors included, comes from one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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

}  // namespace argosy::h5
