// How an executable without ranks ends: the one place that turns an error into a message and an exit code.
// (mpi/program.h does it for ranks.)
#pragma once

#include <functional>

#include "base/error.h"

namespace argosy {

/// Runs `body` and returns the exit code for main; an error is printed to stderr as "<name>: error: ...".
int run_program(const char* name, const std::function<ExitCode()>& body);

/// A limit on file sizes is then an error of the write that met it, and not the end of the process.
void survive_file_size_limit();

}  // namespace argosy
