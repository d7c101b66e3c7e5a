// A run of nccl-bench: every size, type, operation and root of its options, on every axis of its mesh. What
// the pre-flight of a job needs of collectives it takes from here too; neither knows of models or training.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "bench/backend.h"
#include "bench/options.h"
#include "bench/ranks.h"
#include "bench/results.h"
#include "mpi/comm.h"

namespace argosy::bench {

/// The backend's name that the options ask for: "mpi". Throws UserError for one that this build has not.
std::string backend_of(const Options& options);

/// COLLECTIVE: a backend on those ranks.
std::unique_ptr<Backend> make_backend(mpi::Comm group, const Options& options);

/// COLLECTIVE over `world`: measures, the same results on all ranks. The text of the tables goes to `print`
/// piece by piece, on rank 0. Throws TimeoutError that names ranks which stay away.
Results run_benchmark(const mpi::Comm& world, const RollCall& roll, const Options& options,
                      const std::function<void(const std::string&)>& print);

}  // namespace argosy::bench
