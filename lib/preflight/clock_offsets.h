// Offsets between the ranks' clocks. They matter because people compare logs of several nodes, and programs
// compare the times of files.
#pragma once

#include <vector>

#include "bench/control_channel.h"
#include "mpi/comm.h"

namespace argosy::preflight {

/// Seconds since 1970.
using Clock = double (*)();
double time_of_day();

/// COLLECTIVE over `world`: seconds by which each rank's clock is ahead of rank 0's, by rank, on all ranks.
/// One rank after the other answers rank 0 a few times, and the fastest answer counts. This takes well under
/// a millisecond per rank if each rank has a core. REQUIRES: nothing else uses `world` meanwhile. (A
/// duplicate of `world` would avoid that, but making one could wait forever.) Throws TimeoutError, which
/// names the missing ranks.
std::vector<double> clock_offsets(const mpi::Comm& world, const bench::ControlChannel& control,
                                  Clock clock = time_of_day);

}  // namespace argosy::preflight
