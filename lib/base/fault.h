// Faults that tests inject on purpose, to show that the test suite detects them. In the product
// fault_planted() always returns false. A test that injects faults links its own definition
// (tests/support/faults.cpp) in place of fault.cpp's.
#pragma once

namespace argosy {

enum class Fault {
    OmitTensorSum,        // norms' gradients are not summed over the tensor axis
    OmitReplicaSum,       // gradients are not summed over replicas
    WeightTokensPerRank,  // the loss is a mean of per-rank means, not weighted by tokens
    DoubleNorm,           // replicas of a gradient count twice in the norm
    SkipTiedGradient,     // a tied table gets the gradient of only one stage
    KeepLossScale,        // gradients are not divided by the loss scale
    UnscaleTwice,         // gradients are divided by the loss scale twice
    RoundToNearest,       // bf16 state is rounded to nearest
    TruncateWeights,      // bf16 state is truncated
    SkipCollective,       // a benchmarked collective moves nothing
    LoseContribution,     // one rank's part of a benchmarked collective is zeros
    LoseLastElement,      // the last element of a benchmarked collective's result is wrong
};

bool fault_planted(Fault fault);

}  // namespace argosy
