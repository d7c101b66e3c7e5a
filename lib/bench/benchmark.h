// A run of nccl-bench: every size, type, operation and root of its options, on every axis of its mesh. What
// the pre-flight of a job needs of collectives it takes from here too; neither knows of models or training.
#pragma once

#include <functional>
#include <string>

#include "bench/options.h"
#include "bench/ranks.h"
#include "bench/results.h"
#include "mpi/comm.h"

namespace argosy::bench {

/// COLLECTIVE over `world`: measures, the same results on all ranks. The text of the tables goes to `print`
/// piece by piece, on rank 0. Throws TimeoutError that names ranks which stay away.
Results run_benchmark(const mpi::Comm& world, const RollCall& roll, const Options& options,
                      const std::function<void(const std::string&)>& print);

}  // namespace argosy::bench
