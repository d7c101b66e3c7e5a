// How fast the ranks of a job are at what its step does: matrix products, the step's own collectives, and
// what goes between nodes.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bench/ranks.h"
#include "mpi/comm.h"
#include "preflight/load.h"
#include "preflight/nodes.h"

namespace argosy::preflight {

struct SpeedOptions {
    at::ScalarType type;          // of the products
    std::string backend;          // as bench::Options has it
    double timeout_seconds = 60;  // of each wait for a rank
    double seconds_each = 0.5;    // about, of one measurement
    /// Of one operation; larger ones of the step are measured at this size, beyond which links get no faster,
    /// and over slow lines at what `seconds_each` carry.
    size_t most_bytes = 256 << 20;
};

struct LoadSpeed {
    Load load;
    std::vector<double> bus_bandwidths;  // bytes a second, of each of its groups
    int64_t num_wrong = 0;               // elements, over all groups
};

struct Speeds {
    std::vector<double> products;  // FLOP/s of each rank, all at the same time
    std::vector<LoadSpeed> loads;
    /// Bytes a second that all of a node's ranks together send to those of another node while they get as
    /// much; of each node the best over several partners. Empty where there is one node.
    std::vector<double> nodes;
    std::string library = {};      // what carried the data
    bool between_devices = false;  // else between host memories
};

/// COLLECTIVE over `world`: the same on all ranks. Throws TimeoutError that names ranks which stay away.
Speeds measure_speeds(const mpi::Comm& world, const bench::RollCall& roll, const std::vector<Node>& nodes,
                      const std::vector<Load>& loads, const SpeedOptions& options);

}  // namespace argosy::preflight
