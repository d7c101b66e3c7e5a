// The time of a step from the events of one rank of each pipeline stage. All ranks of a stage are taken to do
// the same at the same time.
//
// The idea: each rank computes and launches in order. The launches of a group run one after another, beside
// the rank's computation on GPUs; a processor moves the data itself while it waits (comm/exchange.h). A
// message begins when both ranks have launched it. A rank that waits for a launch which has not ended stands
// still. Collectives under way hold multiprocessors, so that products beside them take longer. The host
// launches one operation after another, and the device runs none before it is launched. Two simplifications
// make a plan optimistic: groups share no link, and messages between stages do not wait for each other.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "plan/rank_trace.h"

namespace argosy::plan {

/// total = compute + optimizer + launches + bubble + all of exposed, in seconds.
struct RankTime {
    double total = 0;
    double compute = 0;
    double optimizer = 0;                     // the update, with its waits
    double launches = 0;                      // waits for the host to launch operations
    double bubble = 0;                        // waits for what another stage has not sent yet
    std::map<std::string, double> exposed;    // all other waits for operations, by group
    std::vector<double> exposed_of_launches;  // the same by RankTrace::launches
    double sum() const;                       // of the parts of `total`
};

/// The times of the ranks in `traces`, which has one rank of each pipeline stage. Throws RunError if they
/// wait for each other for ever.
std::vector<RankTime> simulate_step(std::span<const RankTrace> traces);

}  // namespace argosy::plan
