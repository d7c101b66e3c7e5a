#include "watch/lane.h"

#include <utility>

namespace argosy::watch {

void Lane::require_health() {
    const std::lock_guard lock(mutex_);
    if (!broken_off_) communicator.require_health();
}

void Lane::break_off() {
    {
        const std::lock_guard lock(mutex_);
        if (std::exchange(broken_off_, true)) return;
    }
    communicator.abort();
}

}  // namespace argosy::watch
