// The pieces of a rank's program that a GPU can be given one by one as recorded graphs: its microbatches,
// where they are done one after the other and nothing is under way from one to the next; else the whole
// program is one piece. Pieces that are the same work share a recording, however many microbatches a step
// has.
#pragma once

#include <vector>

#include "parallel/lowering.h"

namespace argosy::parallel {

struct ProgramPart {
    std::vector<UnitOp> ops;  // microbatches are numbered from the piece's first
    int first_microbatch, num_microbatches;
    /// Equal where one recording serves: the same operations, and gradients begin in both or in neither.
    int recording;
};

/// In order. At least one.
std::vector<ProgramPart> parts_of(const Program& program);

}  // namespace argosy::parallel
