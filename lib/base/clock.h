// Time on this machine, for measuring.
#pragma once

#include <chrono>

namespace argosy {

/// Seconds of a monotonic clock. Only differences mean something.
inline double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace argosy
