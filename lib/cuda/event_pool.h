// A pool of CUDA events that are reused, because making an event costs more than recording it. Any thread may
// call the members.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "cuda/stream.h"

namespace argosy::cuda {

/// An event that returns to its pool when the last owner releases it. The pool then reuses it.
using PooledEvent = std::shared_ptr<Event>;

class EventPool {
  public:
    explicit EventPool(Timing timing) : shelf_(std::make_shared<Shelf>(timing)) {}

    PooledEvent take() const;
    /// Returns an event that marks the end of the work given to `stream` so far.
    PooledEvent mark(const StreamView& stream) const;

  private:
    struct Shelf {
        explicit Shelf(Timing kind) : timing(kind) {}
        const Timing timing;
        std::mutex mutex;
        std::vector<std::unique_ptr<Event>> unused;
    };
    std::shared_ptr<Shelf> shelf_;
};

}  // namespace argosy::cuda
