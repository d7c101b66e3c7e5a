// How far a GPU has come in a graph: bytes in the host's memory that it sets on its way, so that who looks
// needs no call of CUDA and no event, which a graph cannot have. One thread calls all of it but is_set().
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/memory.h"
#include "cuda/stream.h"

namespace argosy::comm {

class GraphProgress {
  public:
    /// On this thread's device. REQUIRES: this thread records no graph.
    GraphProgress();

    /// A mark of the graph of this number, which `stream` sets when it comes to here, in each launch. Those
    /// of another graph are given away again.
    const std::byte* set_by(const cuda::Stream& stream, uint64_t graph);

    /// The graph that has marks; 0: none.
    uint64_t graph() const { return graph_; }

    /// None is set any more. REQUIRES: no launch of the graph is under way.
    void clear();

    /// By any thread.
    static bool is_set(const std::byte* mark);

  private:
    cuda::PinnedMemory marks_;
    cuda::DeviceMemory set_;  // what is copied to a mark
    size_t num_marks_ = 0;    // of the graph
    uint64_t graph_ = 0;
};

}  // namespace argosy::comm
