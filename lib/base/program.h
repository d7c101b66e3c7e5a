// Error handling for an executable without ranks: the one function that turns an error into a message and an
// exit code. (mpi/program.h does it for ranks.)
#pragma once

#include <functional>

#include "base/error.h"

namespace argosy {

/// Runs `body` and returns the exit code for main; an error is printed to stderr as "<name>: error: ...".
int run_program(const char* name, const std::function<ExitCode()>& body);

/// After this call, exceeding a limit on file sizes makes the write fail instead of ending the process.
void survive_file_size_limit();

// Signals that ask a program to stop. They are remembered until the program reaches a point where it can stop
// cleanly. train/run_limits.h lets the ranks of a run agree on what follows.

/// Run: SIGTERM and SIGUSR1; a blocking system call is restarted after the signal, so that no checkpoint is
/// cut. Tool: SIGINT, SIGTERM and SIGHUP; a blocking read, such as from a pipe, fails with EINTR.
enum class StopRequests { Run, Tool };

/// These signals are only remembered after this call and have no other effect. Call it first in main, so that
/// no signal is lost, or ends the process, during start-up. Launchers start ranks with SIGUSR1 blocked, so
/// that a signal that arrives before main stays pending; this function unblocks SIGUSR1.
void catch_stop_requests(StopRequests of);

/// Whether one of the signals has arrived. Any thread.
bool stop_requested();

/// RunError once a signal has arrived; unwinding then removes the tool's unfinished output.
void throw_if_stop_requested();

// The version of this build.

/// Version and commit, as `--version` prints them: "0.1.0 (1a2b3c4d5e6f)".
const char* version();

}  // namespace argosy
