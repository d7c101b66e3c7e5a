#include "cuda/stream.h"

#include <utility>

namespace argosy::cuda {

PooledEvent EventPool::take() const {
    std::unique_ptr<Event> event;
    {
        const std::lock_guard lock(state_->mutex);
        if (!state_->unused.empty()) {
            event = std::move(state_->unused.back());
            state_->unused.pop_back();
        }
    }
    if (!event) event = std::make_unique<Event>(state_->timing);
    return {event.release(), [state = state_](Event* back) {
                const std::lock_guard lock(state->mutex);
                state->unused.emplace_back(back);
            }};
}

PooledEvent EventPool::mark(const StreamView& stream) const {
    PooledEvent event = take();
    event->record(stream);
    return event;
}

}  // namespace argosy::cuda
