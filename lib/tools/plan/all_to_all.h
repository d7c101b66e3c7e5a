// The waits of a planned step for all-to-alls, and what they would be if nothing ran beside them: what the
// overlap of shared experts with the slots of others is worth.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "plan/rank_trace.h"
#include "plan/simulate.h"

namespace argosy::plan {

/// Seconds in which a rank waits for all-to-alls.
struct AllToAllWaits {
    double exposed = 0;          // in the step
    double without_overlap = 0;  // if the rank waited for each directly after its launch
};

/// The waits of each rank; empty if there are no all-to-alls. `times`: what the simulation found for
/// `traces`.
std::vector<AllToAllWaits> all_to_all_waits(std::span<const RankTrace> traces,
                                            std::span<const RankTime> times);

/// "experts   rank 0 waits 0.12 s for all-to-alls; 0.31 s without the shared experts beside them". Empty if
/// there are none.
std::string text_of(const AllToAllWaits& waits, int rank);

}  // namespace argosy::plan
