// Simulates the programs of all ranks without computing. The checks are that
// 1. no rank deadlocks, though a channel holds one message only;
// 2. messages arrive in the order in which they are received;
// 3. every operation runs once, and after the operations that it needs;
// 4. slots and gathered weights are not freed while they are in use.
// The simulator also reports the cost of a program: time, activations and gathered weights.
#pragma once

#include <string>
#include <vector>

#include "parallel/lowering.h"

namespace argosy::parallel {

struct Simulation {
    std::string fault;               // the first fault; empty if the programs are correct
    std::vector<int> max_in_flight;  // by rank: maximum number of slots in use at once
    std::vector<int> max_gathered;   // by rank: maximum number of units with gathered weights at once
    int num_rounds = 0;              // length of the longest chain of computations, each of which counts as 1
};

/// `programs[r]` is the program of rank r; stage s runs on rank s % num_ranks. A rank runs its list in order.
/// A receive waits for its message. A channel (a sending and a receiving rank) holds one message: a send does
/// not block its rank, but the next send on the same channel waits until the message was received.
Simulation simulate(const std::vector<Program>& programs, const ScheduleShape& shape,
                    const LoweringOptions& options);

}  // namespace argosy::parallel
