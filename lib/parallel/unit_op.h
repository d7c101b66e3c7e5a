// The small operations of which a rank's program is made: what executor, simulator and planner read.
#pragma once

#include <string>

namespace argosy::parallel {

enum class UnitOpKind {
    Gather,  // start to collect a unit's weights
    Free,    // give them back
    Forward,
    Loss,  // the head: loss, input gradient and its own weights' gradients in one
    Recompute,
    BackwardInput,
    BackwardWeight,
    Reduce,        // start to sum a unit's gradients over the shards
    FinishReduce,  // wait for it
    SumReplicas,   // start to sum a unit's gradients of the step over the replicas
    FinishSum,     // wait for it
    SendActivation,
    ReceiveActivation,
    SendGradient,
    ReceiveGradient,
};

struct UnitOp {
    UnitOpKind kind;
    int stage;
    int unit;        // of the stage; -1 for transfers
    int microbatch;  // -1 where none: gathers, frees, reductions and sums
    int slot = -1;   // where the microbatch's activations live
    bool operator==(const UnitOp&) const = default;
};

/// For messages: "Forward of stage 1 unit 2 microbatch 3".
std::string describe(const UnitOp& op);

/// Whether it adds to the unit's gradients.
bool makes_gradients(UnitOpKind kind);

}  // namespace argosy::parallel
