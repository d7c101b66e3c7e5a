// The time of a step from the events of one rank of each pipeline stage. All ranks of a stage are taken to do
// the same at the same time.
//
// The idea: each rank computes and launches in order. The launches of a group run one after another, beside
// the rank's computation on GPUs; a processor moves the data itself while it waits (comm/exchange.h). A
// message begins when both ranks have launched it. A rank that waits for a launch which has not ended stands
// still. Three simplifications make a plan optimistic: groups share no link, communication does not slow
// computation, and messages between stages do not wait for each other.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "plan/rank_trace.h"

namespace argosy::plan {

/// total = compute + optimizer + bubble + all of exposed, in seconds.
struct RankTime {
    double total = 0;
    double compute = 0;
    double optimizer = 0;                     // the update, with its waits
    double bubble = 0;                        // waits for what another stage has not sent yet
    std::map<std::string, double> exposed;    // all other waits for operations, by group
    std::vector<double> exposed_of_launches;  // the same by RankTrace::launches
};

/// The times of the ranks in `traces`, which has one rank of each pipeline stage. Throws RunError if they
/// wait for each other for ever.
std::vector<RankTime> simulate_step(std::span<const RankTrace> traces);

}  // namespace argosy::plan
