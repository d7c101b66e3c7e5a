// Signals that ask a program to stop, remembered until the program comes to a point where it can stop in
// order. train/stop_signal.h lets the ranks of a run agree on what follows.
#pragma once

namespace argosy {

/// Run: SIGTERM and SIGUSR1; system calls that wait go on, so that no checkpoint is cut.
/// Tool: SIGINT, SIGTERM and SIGHUP; a read that waits, as from a pipe, fails with EINTR.
enum class StopRequests { Run, Tool };

/// Remembers these signals from now on; they have no other effect. Call it first in main, so that no signal
/// is lost or ends the process while it starts and loads. Launchers start ranks with SIGUSR1 blocked,
/// which keeps a signal that comes before main; it is unblocked here.
void catch_stop_requests(StopRequests of);

/// Whether one of the signals has come. Any thread.
bool stop_requested();

/// RunError once one has come, so that what a tool has begun is removed on the way out.
void throw_if_stop_requested();

}  // namespace argosy
