// What carries the data of a run, and the device that each rank works on: chosen once, the same for all
// ranks.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/backend.h"
#include "bench/options.h"
#include "bench/ranks.h"
#include "cuda/device.h"
#include "mpi/comm.h"
#include "nccl/connection_log.h"

namespace argosy::bench {

struct Carrier {
    std::string backend;                       // "mpi" or "nccl"
    std::string library;                       // its name and version
    std::vector<cuda::Device> devices;         // by rank of the world; empty: host memory
    std::unique_ptr<nccl::ConnectionLog> log;  // none over MPI, and where the user has a log of his own
};

/// COLLECTIVE: what the options ask for; by default NCCL where this build has it and every rank sees a GPU,
/// else MPI. A rank's device is the one that has its number among the ranks of its node; the only one, where
/// a launcher leaves it no other. Throws UserError that names the ranks which have none, or share one.
Carrier choose_carrier(const mpi::Comm& world, const RollCall& roll, const Options& options);

/// COLLECTIVE over `world`, split into groups: a backend on `members`, numbers of the world in ascending
/// order, this rank among them. Throws TimeoutError that names ranks which stay away.
std::unique_ptr<Backend> make_backend(const mpi::Comm& world, const RollCall& roll,
                                      std::span<const int> members, const Carrier& carrier,
                                      const Options& options);

}  // namespace argosy::bench
