// Mistakes that the tests make on purpose, to show that they would notice them. The product answers false,
// always; the test that plants them links its own definition of `fault_planted` (tests/support/faults.cpp) in
// place of fault.cpp's.
#pragma once

namespace argosy {

enum class Fault {
    OmitTensorSum,        // norms' gradients are not summed over the tensor axis
    OmitReplicaSum,       // gradients are not summed over replicas
    WeightTokensPerRank,  // the loss is a mean of per-rank means
    DoubleNorm,           // replicas of a gradient count twice in the norm
    SkipTiedGradient,     // a tied table gets one stage's gradient only
    KeepLossScale,        // gradients are not divided by the loss scale
    UnscaleTwice,         // gradients are divided by it twice
    RoundToNearest,       // what is kept in bf16 is rounded to the nearest
    TruncateWeights,      // what is kept in bf16 loses its lower bits
    SkipCollective,       // a benchmarked collective moves nothing
    LoseContribution,     // one rank's part of a benchmarked collective is zeros
    LoseLastElement,      // the last element of a benchmarked collective's result is another
};

bool fault_planted(Fault fault);

}  // namespace argosy
