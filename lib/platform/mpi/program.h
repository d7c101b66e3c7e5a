// The start and the end of every executable that runs on ranks: run_program() starts MPI, runs the body,
// prints one message per error, and returns one exit code.
#pragma once

#include <functional>

#include "base/environment.h"
#include "base/error.h"
#include "mpi/comm.h"

namespace argosy::mpi {

/// Runs `body` on every rank and returns the exit code for main. If all ranks have the same error (a wrong
/// configuration, a job that diverged), rank 0 prints it and all ranks leave in order. An error of one rank
/// is printed with the rank's number and ends the job. A rank whose error another rank reports
/// (Reach::ReportedByAnother) first gives that rank time to report the error and end the job. Checks that
/// the launcher started one job of N ranks, not N jobs of one rank.
int run_program(const char* name, int* argc, char*** argv,
                const std::function<ExitCode(const Comm& world, const Environment&)>& body);

/// Rethrows the current exception. If errors of its kind usually are of one rank, prints it first;
/// run_program() does not print it again. REQUIRES: the caller is inside a catch block.
[[noreturn]] void print_and_rethrow(const char* name, const Comm& ranks);

/// Returns work(). Prints an error of this rank before the caller's objects are destroyed, because their
/// destructors may wait for a GPU, and the GPU for other ranks.
template <class Work>
auto print_errors_first(const char* name, const Comm& ranks, const Work& work) {
    try {
        return work();
    } catch (...) {
        print_and_rethrow(name, ranks);
    }
}

}  // namespace argosy::mpi
