#include "cuda/stream.h"

#include <utility>

namespace argosy::cuda {

PooledEvent EventPool::take() const {
    std::unique_ptr<Event> event;
    {
        const std::lock_guard lock(shelf_->mutex);
        if (!shelf_->unused.empty()) {
            event = std::move(shelf_->unused.back());
            shelf_->unused.pop_back();
        }
    }
    if (!event) event = std::make_unique<Event>(shelf_->timing);
    return {event.release(), [shelf = shelf_](Event* back) {
                const std::lock_guard lock(shelf->mutex);
                shelf->unused.emplace_back(back);
            }};
}

PooledEvent EventPool::mark(const StreamView& stream) const {
    PooledEvent event = take();
    event->record(stream);
    return event;
}

}  // namespace argosy::cuda
