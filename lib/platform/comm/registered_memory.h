// Memory that is registered with a lane's NCCL communicator (nccl::RegisteredMemory). Tensors are parts of
// segments. The part of a freed tensor serves a later tensor of the same size, in the order of the compute
// stream, as in LibTorch's allocator. Memory is never given back, nor to tensors of another size: it is the
// sum, over all sizes, of the tensors that live at one time, and at most a third more.
//
// NCCL requires that all ranks register the same sizes in the same order, and that the tensors of an
// operation have the same offsets on every rank. This holds because every rank of the group makes and frees
// tensors of the same sizes in the same order.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "nccl/comm.h"
#include "watch/gpu_state.h"

namespace argosy::comm {

class RegisteredSegments : public std::enable_shared_from_this<RegisteredSegments> {
  public:
    explicit RegisteredSegments(std::shared_ptr<watch::Lane> lane) : lane_(std::move(lane)) {}

    /// A tensor without values, which keeps this object. COLLECTIVE over the lane unless has_room(); throws
    /// RunError if a graph is being recorded then.
    at::Tensor make(at::IntArrayRef shape, const at::TensorOptions& options);
    /// Whether make() registers nothing.
    bool has_room(at::IntArrayRef shape, const at::TensorOptions& options) const;

    int64_t num_bytes() const { return num_bytes_; }
    /// Whether NCCL took the segments: it does not where the lane's GPUs do not reach each other's memory.
    bool registered() const;

  private:
    std::byte* take(int64_t bytes);

    std::shared_ptr<watch::Lane> lane_;
    std::vector<nccl::RegisteredMemory> segments_;
    int64_t num_bytes_ = 0;
    std::byte* next_ = nullptr;  // the rest of a segment that has room
    int64_t rest_bytes_ = 0;
    std::multimap<int64_t, std::byte*> free_;  // by size
};

}  // namespace argosy::comm
