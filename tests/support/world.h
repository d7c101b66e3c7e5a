// The ranks that a suite with RANKS runs on. Every rank runs every test, so a test is a collective program:
// what one rank asserts away, the others wait for until their bounded wait ends.
#pragma once

#include "comm/communicator.h"

namespace argosy::testing {

/// How long a wait in a test may take before it fails.
inline constexpr double kTimeoutSeconds = 30;

/// What a rank lends each group, as pretrain does; enough for what a test has in flight.
inline constexpr int64_t kSharedMemoryBytes = 8 << 20;

comm::Communicator& world();  // all ranks; it and its groups share memory
comm::Communicator& self();   // this rank alone

}  // namespace argosy::testing
