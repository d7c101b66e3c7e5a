// Shows how far a GPU has come in a graph. Each operation of the graph has marks in pinned host memory; when
// the GPU reaches a mark, it writes the number of the launch there. A reader needs neither a CUDA call nor an
// event (a graph cannot contain one), and several launches may follow each other without the host. One thread
// calls all members; any thread may call the static ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/memory.h"
#include "cuda/stream.h"

namespace argosy::watch {

/// Number of a launch modulo 65535, plus 1; 0 if the mark is not set yet. Two launches that are less than
/// 65535 apart have different numbers.
using GraphMark = uint16_t;

class GraphProgress {
  public:
    /// Allocates on this thread's device. REQUIRES: this thread records no graph; the same holds for
    /// begin_launch().
    GraphProgress();

    /// Work that is put on `stream` after this call, such as a graph, sets its marks to this launch, until
    /// the next begin_launch(). Launches are numbered from 1.
    void begin_launch(int64_t launch, const cuda::StreamView& stream);

    /// Adds a mark to the graph that captures `stream`: each launch of the graph sets the mark when it
    /// reaches this point.
    const GraphMark* set_by(const cuda::Stream& stream);

    /// Whether this launch was the last one that set the mark.
    static bool is_of(const GraphMark* mark, int64_t launch);

  private:
    void require_room();

    std::vector<cuda::PinnedMemory> blocks_;  // new marks come from the last block
    size_t num_taken_ = 0;                    // marks taken from the last block
    cuda::DeviceMemory numbers_, own_;        // all values of a mark; the value of the latest launch
};

}  // namespace argosy::watch
