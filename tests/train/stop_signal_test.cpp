// A signal that one rank gets stops all ranks, at the same step.
#include "train/stop_signal.h"

#include <gtest/gtest.h>

#include <csignal>

#include "support/world.h"

namespace argosy::train {
namespace {

using ::argosy::testing::world;

// What a process received stays with it, so this is one test.
TEST(StopSignal, AllAgreeInTheStepInWhichOneRankGotIt) {
    StopSignal stop(world());
    const bool signalled = world().rank() == world().size() - 1;
    for (int step = 1; step <= 3; ++step) EXPECT_FALSE(stop.agreed()) << "step " << step;
    if (signalled) std::raise(SIGTERM);
    EXPECT_TRUE(stop.agreed());
    if (signalled) std::raise(SIGUSR1);  // must not end the process either
    EXPECT_TRUE(stop.agreed());
}

}  // namespace
}  // namespace argosy::train
