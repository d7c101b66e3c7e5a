// The collectives of tensor and expert parallelism in a planned step: which of them overlap with matrix
// products, and why the others do not.
//
// The table stands on the events of a rank's step (rank_trace.h): a collective overlaps if matrix products
// run between its launch and the wait for its end. Operations carry their purpose (comm::Purpose).
#pragma once

#include <string>
#include <vector>

#include "plan/rank_trace.h"
#include "plan/simulate.h"

namespace argosy::plan {

/// The collectives of one purpose in a step of a rank: for experts, or over ranks among which are those of
/// its tensor axis.
struct TensorCollective {
    std::string group;  // axes: "tp", "world"
    std::string pass;   // as Launch::pass
    std::string work;   // as comm::Purpose::work
    comm::OpKind kind;  // of the whole collective
    bool in_parts;      // messages between products of parts, one for each rank
    int64_t number = 0;
    comm::MovedBytes moved = {};
    double seconds = 0;          // on the links, if nothing else used them
    double exposed_seconds = 0;  // the part in which the rank waits
    double product_seconds = 0;  // of products that run meanwhile
    std::string why_not = {};    // it does not overlap with products; empty: it does
};

/// In the order of their first launch. With one tensor rank, those for experts alone. The sums of `moved`
/// over a group with the tensor axis are those of RankTrace::moved. `time`: what the simulation found for
/// `trace`.
std::vector<TensorCollective> tensor_collectives(const RankTrace& trace, const RankTime& time,
                                                 int num_tensor_ranks);

}  // namespace argosy::plan
