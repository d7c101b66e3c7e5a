// The ranks that a suite with RANKS runs on. Every rank runs every test, so a test is a collective program:
// if an assertion fails on one rank, the others wait for it until their timeout.
#pragma once

#include "comm/communicator.h"

namespace argosy::testing {

/// Time limit of a wait in a test.
inline constexpr double kTimeoutSeconds = 30;

/// Shared memory per rank and group, as in pretrain; enough for the operations that a test has in flight.
inline constexpr int64_t kSharedMemoryBytes = 8 << 20;

comm::Communicator& world();  // all ranks; it and its groups share memory
comm::Communicator& self();   // this rank alone

}  // namespace argosy::testing
