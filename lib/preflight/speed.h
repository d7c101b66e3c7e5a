// Measures how fast a job's ranks do the work of its training step: matrix products, the step's own
// collectives, and transfers between pairs of nodes.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bench/control_channel.h"
#include "mpi/comm.h"
#include "preflight/load.h"
#include "preflight/nodes.h"

namespace argosy::preflight {

struct SpeedOptions {
    at::ScalarType type;          // element type of the matrix products
    std::string backend;          // see bench::Options::backend
    double timeout_seconds = 60;  // for each wait for other ranks
    double seconds_each = 0.5;    // approximate time of one measurement
    /// Maximum bytes of one operation. Larger operations of the step are measured at this size, beyond which
    /// links get no faster; over slow links, at a size that takes about `seconds_each`.
    size_t most_bytes = 256 << 20;
};

struct LoadSpeed {
    Load load;
    std::vector<double> bus_bandwidths;  // bytes a second, for each group of the load
    int64_t num_wrong = 0;               // wrong elements in all groups
};

struct Speeds {
    std::vector<double> products;  // FLOP/s of each rank while all ranks compute
    std::vector<LoadSpeed> loads;
    /// For each node, bytes a second that all of its ranks together send to another node while they receive
    /// as much; the maximum over several partner nodes. Empty if there is only one node.
    std::vector<double> nodes;
    std::string library = {};      // name and version of the library that moved the data
    bool between_devices = false;  // true: buffers in GPU memory; false: in host memory
};

/// COLLECTIVE over `world`: all ranks get the same speeds. TimeoutError names the missing ranks.
Speeds measure_speeds(const mpi::Comm& world, const bench::ControlChannel& control,
                      const std::vector<Node>& nodes, const std::vector<Load>& loads,
                      const SpeedOptions& options);

}  // namespace argosy::preflight
