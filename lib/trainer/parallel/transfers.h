// The transfers between the stages of a pipeline, and the simulation of the actions of all ranks: it detects
// deadlocks and gives a step's duration.
#pragma once

#include <string>
#include <vector>

#include "parallel/schedule.h"

namespace argosy::parallel {

/// Adds the transfers to the compute actions of all ranks. A channel carries the activations, or the
/// gradients, from one rank to another, in the order in which the sender makes them; it holds one message.
/// Each send is directly after the action that makes its data, each Take directly before the action that
/// needs them. Between two stages of one rank, data are moved without a channel. A receive starts one action
/// before its Take (or earlier, if the receiver takes the channel's messages in another order), except that
/// 1. the receives of a channel keep the order of its sends,
/// 2. a receive starts after the actions of its own rank on which its message depends. If the receiver hangs
///    while it computes, the message still arrives, and the watchdog sees a rank that waits for nothing,
/// 3. the first receive of a channel starts directly before its Take. NCCL connects two ranks in the call for
///    their first message, which blocks the host of each rank until the other rank makes its call.
RankActions with_transfers(const RankActions& ranks, const StageMap& stages);

/// Durations, in any unit. A transfer starts when the send and the receive have started.
struct ActionTimes {
    double forward = 1, backward_input = 1, backward_weight = 1, transfer = 0;
};

struct ActionSimulation {
    std::string deadlock;  // which ranks wait for what; empty if no rank waits forever
    double duration = 0;   // from the start of the step to the end of its last action
    double busy = 0;       // sum over the ranks of the time in which they compute
    /// The share of the ranks' time in which they wait.
    double bubble_share(int num_ranks) const { return 1 - busy / (duration * num_ranks); }
};

/// Simulates the actions of all ranks with their transfers. A rank runs its list in order. A send waits until
/// the message before on its channel has arrived, which needs that its receive has started.
ActionSimulation simulate_actions(const RankActions& ranks, const StageMap& stages,
                                  const ActionTimes& times = {});

}  // namespace argosy::parallel
