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

}  // namespace argosy
