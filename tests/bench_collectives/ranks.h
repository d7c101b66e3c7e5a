// A benchmark's ranks in a test.
#pragma once

#include "bench/benchmark.h"
#include "bench/measure.h"
#include "bench/mpi_backend.h"

namespace argosy::bench {

/// All ranks, with messages of their own.
struct Ranks {
    mpi::Comm world = mpi::Comm::world();
    RollCall roll{world, exchange_rank_info(world, 30), 30};
    int rank = world.rank();
    int size = world.size();

    MpiBackend backend(mpi::Calls calls = mpi::Calls::NonBlocking) const {
        return {world.duplicate(calls), 30};
    }
};

}  // namespace argosy::bench
