// Access to tensors by name, from any kind of file: a step's shards, a full file, safetensors. The names are
// those of FORMAT.md ("model/norm.weight"). Reading returns the stored bytes without conversion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/element_type.h"
#include "layout/slab.h"

namespace argosy::checkpoint {

struct TensorInfo {
    std::string name;
    ElementType type = ElementType::Float32;
    std::vector<int64_t> shape;
    int64_t num_elements() const { return layout::num_elements(shape); }
    int64_t num_bytes() const { return num_elements() * size_bytes(type); }
    const char* type_name() const;  // "f32"
    bool operator==(const TensorInfo&) const = default;
};

class TensorSource {
  public:
    virtual ~TensorSource() = default;

    /// All tensors, in the fastest order for reading.
    virtual const std::vector<TensorInfo>& tensors() const = 0;

    /// Reads the slab's elements into `out`, row-major. Any thread may call this. UserError if a file is
    /// damaged, missing or not the one that was saved; RunError if reading fails. REQUIRES: `tensor` is one
    /// of tensors(), and `out` has the slab's size.
    virtual void read(const TensorInfo& tensor, const layout::Slab& slab, std::span<std::byte> out) const = 0;

    /// The folder or file, for messages.
    virtual const std::string& place() const = 0;

    /// The tensor of this name; null if there is none.
    const TensorInfo* find(const std::string& name) const;
    /// The tensor of this name. UserError, which lists the existing tensors, if there is none.
    const TensorInfo& at(const std::string& name) const;
};

}  // namespace argosy::checkpoint
