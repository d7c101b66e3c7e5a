// How every executable that runs on ranks starts and ends: MPI up, the body, one message per error, one exit
// code.
#pragma once

#include <functional>

#include "base/environment.h"
#include "base/error.h"
#include "mpi/comm.h"

namespace argosy::mpi {

/// Runs `body` on every rank and returns the exit code for main. An error that all ranks meet alike (a wrong
/// configuration, a job that diverged) is printed by rank 0 and all ranks leave in order; an error of one
/// rank is printed with its number and takes the job down. Ranks that another speaks for give it the time to.
/// Checks that the launcher started one job of N ranks, not N jobs of one.
int run_program(const char* name, int* argc, char*** argv,
                const std::function<ExitCode(const Comm& world, const Environment&)>& body);

}  // namespace argosy::mpi
