// Memory for tensors outside of LibTorch's allocator, for transfers that need it. Tensors are parts of
// segments. The part of a freed tensor serves a later tensor of the same size, in the order of the compute
// stream, as in LibTorch's allocator. Memory is never given back, nor to tensors of another size: it is the
// sum, over all sizes, of the tensors that live at one time, and at most a third more.
//
// Ranks that make and free tensors of the same sizes in the same order have each tensor at the same place of
// the same segment.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

namespace argosy::comm {

class TensorPool : public std::enable_shared_from_this<TensorPool> {
  public:
    virtual ~TensorPool() = default;

    /// A tensor without values, which keeps this object.
    at::Tensor make(at::IntArrayRef shape, const at::TensorOptions& options);
    /// Whether make() adds no segment.
    bool has_room(at::IntArrayRef shape, const at::TensorOptions& options) const;

    int64_t num_bytes() const { return num_bytes_; }

  private:
    /// Returns the begin of a new segment, which lives as long as this object.
    virtual std::byte* add_segment(int64_t num_bytes) = 0;
    std::byte* take(int64_t bytes);

    int64_t num_bytes_ = 0;
    std::byte* next_ = nullptr;  // the rest of a segment that has room
    int64_t rest_bytes_ = 0;
    std::multimap<int64_t, std::byte*> free_;  // by size
};

}  // namespace argosy::comm
