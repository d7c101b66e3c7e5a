// Runs all ranks' programs on paper, to prove them: no deadlock when every send is a rendezvous, messages in
// the order in which they are awaited, every operation once and after what it needs, slots and gathered
// weights not given away while in use. Also what a program costs: time, activations and gathered weights.
#pragma once

#include <string>
#include <vector>

#include "parallel/lowering.h"

namespace argosy::parallel {

struct Simulation {
    std::string fault;                // empty: the programs are sound; else the first thing that is wrong
    std::vector<int> most_in_flight;  // by rank: microbatches whose activations are held at once
    std::vector<int> most_gathered;   // by rank: units whose weights are held at once, if they are sharded
    int num_rounds = 0;  // longest chain of computations, one unit of time each: how full the pipeline is
};

/// `programs[r]` is rank r's; stage s runs on rank s % num_ranks. A rank runs its list in order. A receive
/// waits for its message. A send does not stop its rank, but the next one on the same channel (a pair of
/// ranks and a direction) waits until it was received: a channel holds one message.
Simulation simulate(const std::vector<Program>& programs, const ScheduleShape& shape,
                    const LoweringOptions& options);

}  // namespace argosy::parallel
