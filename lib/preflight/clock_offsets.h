// How far the ranks' clocks are apart: logs of several nodes are read side by side, and files' times
// compared.
#pragma once

#include <vector>

#include "bench/ranks.h"
#include "mpi/comm.h"

namespace argosy::preflight {

/// Seconds since 1970.
using Clock = double (*)();
double time_of_day();

/// COLLECTIVE: seconds by which each rank's clock is ahead of rank 0's, by rank, on all ranks. One rank after
/// the other answers rank 0 a few times, and the fastest answer counts; that takes well under a millisecond a
/// rank where each has a core. Nobody else may use `world` at the same time: making another one could wait
/// forever. TimeoutError that names who does not answer.
std::vector<double> clock_offsets(const mpi::Comm& world, const bench::RollCall& roll,
                                  Clock clock = time_of_day);

}  // namespace argosy::preflight
