// The signals that ask a run to save and stop, SIGTERM and SIGUSR1. This file remembers them for the process;
// train/stop_signal.h lets all ranks agree on what follows.
#pragma once

namespace argosy {

/// From now on the two signals are remembered, and have no other effect. The first call in main, so that no
/// signal is lost or ends the process while it starts and loads. Launchers start ranks with SIGUSR1 blocked,
/// which keeps a signal that comes before main; it is unblocked here.
void catch_stop_requests();

/// Whether one of the two signals has come.
bool stop_requested();

}  // namespace argosy
