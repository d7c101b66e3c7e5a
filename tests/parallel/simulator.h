// Simulates the programs of all ranks without computing. The checks are that
// 1. no rank deadlocks, although a channel holds one message only;
// 2. messages arrive in the order in which they are received;
// 3. every operation runs once, and after the operations that it needs;
// 4. slots and gathered weights are not freed while they are in use, and one receive of a channel is under
//    way at a time.
// The simulator also reports the cost of a program: time, activations and gathered weights.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "parallel/lowering.h"

namespace argosy::parallel {

/// How messages travel. The unit of time is a round: the duration of one computation.
struct Transport {
    int transfer_rounds = 0;  // a message travels for so long, once it is sent and its receive has started
    /// A message travels from its send on, as if all receives had started at the start of the step.
    bool ignores_receives = false;
    /// The first send and the first receive of a channel block until the other one has started, as in NCCL.
    bool connects_at_first_message = false;
};

struct Simulation {
    std::string fault;               // the first fault; empty if the programs are correct
    std::vector<int> max_in_flight;  // by rank: maximum number of slots in use at once
    std::vector<int> max_gathered;   // by rank: maximum number of units with gathered weights at once
    int num_rounds = 0;              // duration of the step: the longest chain of computations and transfers
};

/// `programs[r]` is the program of rank r; the stages are on the ranks as in shape.stages(). A rank runs its
/// list in order. A channel (a sending and a receiving rank in one group of ranks) holds one message: a
/// send does not block its rank, but the next send on the same channel waits until the message has arrived. A
/// receive does not block its rank; the Take waits until the message has arrived.
Simulation simulate(const std::vector<Program>& programs, const ScheduleShape& shape,
                    const LoweringOptions& options, const Transport& transport = {});

/// Stops `rank` for ever before its op number `position`, and lets the other ranks run as far as they can.
/// Returns the receive that is still under way on `rank`, described, or "" if there is none.
std::string missing_after_stop(const std::vector<Program>& programs, const ScheduleShape& shape,
                               const LoweringOptions& options, int rank, size_t position);

}  // namespace argosy::parallel
