// The ranks of a benchmark in a test, and their backend: NCCL if the suite is linked with the fake GPUs, else
// MPI.
#pragma once

#include <numeric>
#include <vector>

#include "bench/backend.h"
#include "bench/benchmark.h"
#include "bench/measure.h"

namespace argosy::bench {

/// All ranks, with their own ControlChannel.
struct Ranks {
    mpi::Comm world = mpi::Comm::world();
    ControlChannel control{world, 30};
    BackendChoice choice = choose_backend(world, control, "");
    int rank = world.rank();
    int size = world.size();

    std::unique_ptr<Backend> backend() const {
        std::vector<int> all(size);
        std::iota(all.begin(), all.end(), 0);
        return make_backend(world, control, all, choice, /*timeout_seconds=*/30);
    }
    std::unique_ptr<Backend> mpi_backend() const {
        return make_mpi_backend(world.duplicate(), /*timeout_seconds=*/30);
    }
};

}  // namespace argosy::bench
