// Whole tensors by name, wherever they come from: a step's shards, a full file, safetensors. Names are those
// of FORMAT.md ("model/norm.weight"). What is read is bytes; nothing is converted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "h5/element_type.h"
#include "layout/param_spec.h"

namespace argosy::checkpoint {

struct TensorInfo {
    std::string name;
    h5::ElementType type = h5::ElementType::F32;
    std::vector<int64_t> shape;
    int64_t num_elements() const;
    int64_t num_bytes() const { return num_elements() * h5::size_bytes(type); }
    bool operator==(const TensorInfo&) const = default;
};

class TensorSource {
  public:
    virtual ~TensorSource() = default;

    /// In the order in which they are best read.
    virtual const std::vector<TensorInfo>& tensors() const = 0;

    /// The slab's elements, row-major. From any thread. UserError for a file that is torn, missing or not the
    /// one that was saved; RunError where reading fails. REQUIRES: `tensor` is one of tensors(), `out` the
    /// slab's bytes.
    virtual void read(const TensorInfo& tensor, const layout::Slab& slab, std::span<std::byte> out) const = 0;

    /// For messages: the folder or file.
    virtual const std::string& place() const = 0;

    /// Null where it is absent.
    const TensorInfo* find(const std::string& name) const;
    /// UserError, with what is there, where it is absent.
    const TensorInfo& at(const std::string& name) const;
};

/// The slab that is the whole tensor.
layout::Slab whole(const TensorInfo& tensor);

}  // namespace argosy::checkpoint
