// Signals that ask a program to end, remembered until the program comes to a point where it can end in order.
// The handler stands for the rest of the process. Reading is possible from any thread.
#pragma once

#include <initializer_list>

namespace argosy {

/// From now on these signals are remembered and end nothing by themselves. A read that waits, as from a pipe,
/// fails with EINTR.
void remember_signals(std::initializer_list<int> signals);

/// The last signal that came, or 0.
int received_signal();

/// RunError once a signal has come, so that what the program has begun is removed on the way out.
void stop_on_signal();

}  // namespace argosy
