// Parts of a rank's program that can be recorded as GPU graphs (recorded_run.h). Each microbatch is one
// part if the microbatches run one after the other and nothing is under way from one to the next. Otherwise,
// the whole program is one part. Equal parts share a recording, so the number of recordings does not grow
// with the number of microbatches.
#pragma once

#include <vector>

#include "parallel/lowering.h"

namespace argosy::parallel {

struct ProgramPart {
    std::vector<UnitOp> ops;  // the numbers of microbatches count from first_microbatch
    int first_microbatch, num_microbatches;
    /// Number of the recording. Two parts share a recording if they have the same operations and neither is
    /// the step's first part. The first part writes the gradients; later parts add to them.
    int recording;
};

/// Returns the parts in the order in which they run; at least one.
std::vector<ProgramPart> parts_of(const Program& program);

}  // namespace argosy::parallel
