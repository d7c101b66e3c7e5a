// Events of CUDA that are used again: making one costs more than recording it. Any thread may call it.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "cuda/stream.h"

namespace argosy::comm {

/// Goes back to its pool with the last who holds it, and is then recorded anew for something else.
using PooledEvent = std::shared_ptr<cuda::Event>;

class EventPool {
  public:
    explicit EventPool(cuda::Timing timing) : shelf_(std::make_shared<Shelf>(timing)) {}

    PooledEvent take() const;
    /// One that marks the end of what was given to `stream` so far.
    PooledEvent mark(const cuda::StreamView& stream) const;

  private:
    struct Shelf {
        explicit Shelf(cuda::Timing kind) : timing(kind) {}
        const cuda::Timing timing;
        std::mutex mutex;
        std::vector<std::unique_ptr<cuda::Event>> unused;
    };
    std::shared_ptr<Shelf> shelf_;
};

}  // namespace argosy::comm
