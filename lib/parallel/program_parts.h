// Cuts a rank's program into parts that can be recorded as GPU graphs. Each microbatch is one part if the
// microbatches run one after the other and nothing is under way from one to the next; otherwise the whole
// program is one part. Equal parts share a recording, so the number of recordings does not grow with the
// number of microbatches.
#pragma once

#include <vector>

#include "parallel/lowering.h"

namespace argosy::parallel {

struct ProgramPart {
    std::vector<UnitOp> ops;  // the numbers of microbatches count from first_microbatch
    int first_microbatch, num_microbatches;
    /// Number of the recording. Two parts share one if they have the same operations and if both or neither
    /// of them is the step's first part, which writes gradients where later parts add to them.
    int recording;
};

/// Returns the parts in the order in which they run; at least one.
std::vector<ProgramPart> parts_of(const Program& program);

}  // namespace argosy::parallel
