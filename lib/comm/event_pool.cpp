#include "comm/event_pool.h"

#include <utility>

namespace argosy::comm {

PooledEvent EventPool::take() const {
    std::unique_ptr<cuda::Event> event;
    {
        const std::lock_guard lock(shelf_->mutex);
        if (!shelf_->unused.empty()) {
            event = std::move(shelf_->unused.back());
            shelf_->unused.pop_back();
        }
    }
    if (!event) event = std::make_unique<cuda::Event>(shelf_->timing);
    return {event.release(), [shelf = shelf_](cuda::Event* back) {
                const std::lock_guard lock(shelf->mutex);
                shelf->unused.emplace_back(back);
            }};
}

PooledEvent EventPool::mark(const cuda::StreamView& stream) const {
    PooledEvent event = take();
    event->record(stream);
    return event;
}

}  // namespace argosy::comm
