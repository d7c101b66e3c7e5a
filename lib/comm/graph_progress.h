// How far a GPU has come in a graph: marks in the host's memory that it sets on its way, each time to the
// number of the launch, so that who looks needs no call of CUDA and no event, which a graph cannot have, and
// several launches may follow each other without the host. Of one thread, but for what is static.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/memory.h"
#include "cuda/stream.h"

namespace argosy::comm {

/// Tells launches apart that are less than 65535 apart; 0: not set yet.
using GraphMark = uint16_t;

class GraphProgress {
  public:
    /// On this thread's device. REQUIRES: this thread records no graph; for begin_launch(), too.
    GraphProgress();

    /// What is put on `stream` from now on, a graph for one, sets marks to this launch, up to the next.
    /// Launches are numbered from 1.
    void begin_launch(int64_t launch, const cuda::StreamView& stream);

    /// A mark that `stream`, which a graph captures, sets when it comes to here, in each launch.
    const GraphMark* set_by(const cuda::Stream& stream);

    /// Whether the mark was set last by this launch.
    static bool is_of(const GraphMark* mark, int64_t launch);

  private:
    void require_room();

    std::vector<cuda::PinnedMemory> blocks_;  // marks are taken from the last one
    size_t num_taken_ = 0;                    // of it
    cuda::DeviceMemory numbers_, own_;        // all that a mark may be; of the launch under way
};

}  // namespace argosy::comm
