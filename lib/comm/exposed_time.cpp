#include "comm/exposed_time.h"

namespace argosy::comm {

void ExposedTime::collect() {
    while (!waits_.empty() && waits_.front().after->done()) {
        seconds_ += cuda::Event::seconds_between(*waits_.front().before, *waits_.front().after);
        waits_.pop_front();
    }
}

}  // namespace argosy::comm
