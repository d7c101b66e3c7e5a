// A run of nccl-bench: every size, type, operation and root of its options, on every mesh axis. The module
// knows nothing of models or training; the pre-flight of a job measures its collectives with it too.
#pragma once

#include <functional>
#include <string>

#include "bench/carrier.h"
#include "bench/control_channel.h"
#include "bench/options.h"
#include "bench/results.h"
#include "mpi/comm.h"

namespace argosy::bench {

/// COLLECTIVE over `world`: runs all measurements and returns the same results on all ranks. Rank 0 passes
/// the text of the tables to `print` piece by piece. Throws TimeoutError, which names the missing ranks.
Results run_benchmark(const mpi::Comm& world, const ControlChannel& control, const Options& options,
                      const std::function<void(const std::string&)>& print,
                      const MakeBackend& make = make_backend);

}  // namespace argosy::bench
