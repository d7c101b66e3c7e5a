// Faults that tests inject on purpose, to show that the test suite detects them. In the product
// fault_planted() always returns false. A test that injects faults links its own definition
// (tests/support/faults.cpp) in place of fault.cpp's.
#pragma once

namespace argosy {

enum class Fault {
    SkipCollective,       // a benchmarked collective moves nothing
    LoseContribution,     // one rank's part of a benchmarked collective is zeros
    LoseLastElement,      // the last element of a benchmarked collective's result is wrong
};

bool fault_planted(Fault fault);

}  // namespace argosy
