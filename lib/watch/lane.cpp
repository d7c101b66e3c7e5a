#include "watch/lane.h"

#include <utility>

namespace argosy::watch {

void Lane::require_health() {
    const std::lock_guard lock(mutex_);
    if (!aborted_) communicator.require_health();
}

void Lane::abort() {
    {
        const std::lock_guard lock(mutex_);
        if (std::exchange(aborted_, true)) return;
    }
    communicator.abort();
}

}  // namespace argosy::watch
