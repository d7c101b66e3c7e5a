// Memory that is registered with a lane's NCCL communicator (nccl::RegisteredMemory), for the tensors of the
// lane's operations.
//
// NCCL requires that all ranks register the same sizes in the same order, and that the tensors of an
// operation have the same offsets on every rank. This holds because every rank of the group makes and frees
// tensors of the same sizes in the same order.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "comm/tensor_pool.h"
#include "nccl/comm.h"
#include "watch/gpu_state.h"

namespace argosy::comm {

class RegisteredSegments : public TensorPool {
  public:
    explicit RegisteredSegments(std::shared_ptr<watch::Lane> lane) : lane_(std::move(lane)) {}

    /// Whether NCCL took the segments: it does not where the lane's GPUs do not reach each other's memory.
    bool registered() const;

  private:
    /// COLLECTIVE over the lane. Throws RunError if a graph is being recorded.
    std::byte* add_segment(int64_t num_bytes) override;

    std::shared_ptr<watch::Lane> lane_;
    std::vector<nccl::RegisteredMemory> segments_;
};

}  // namespace argosy::comm
