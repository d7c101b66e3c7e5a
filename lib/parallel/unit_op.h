// The small operations of a rank's program. The executor runs them; tests/parallel/simulator.h checks lists
// of them.
#pragma once

#include <string>

namespace argosy::parallel {

enum class UnitOpKind {
    Gather,          // start to all-gather a unit's weights
    Release,         // free the gathered weights
    Forward,         // one layer
    Loss,            // the head: loss, input gradient and its own weights' gradients in one operation
    Recompute,       // compute again the activations of a layer that forward did not keep
    BackwardInput,   // the gradient of a layer's input
    BackwardWeight,  // the gradients of a layer's weights
    Reduce,          // start to reduce-scatter a unit's gradients over the shards
    FinishReduce,    // wait for the reduce-scatter
    SumReplicas,     // start to all-reduce a unit's gradients of the step over the replicas
    FinishSum,       // wait for the all-reduce
    SendActivation,
    ReceiveActivation,
    SendGradient,
    ReceiveGradient,
};

struct UnitOp {
    UnitOpKind kind;
    int stage;
    int unit;        // number of the unit in the stage; -1 for transfers
    int microbatch;  // -1 for gathers, releases, reductions and sums
    int slot = -1;   // number of the slot that holds the microbatch's activations
    bool operator==(const UnitOp&) const = default;
};

/// The text for messages: "Forward of stage 1 unit 2 microbatch 3".
std::string describe(const UnitOp& op);

/// Whether operations of this kind add to their unit's gradients.
bool makes_gradients(UnitOpKind kind);

}  // namespace argosy::parallel
