// A signal that one rank gets stops all ranks, at the same step.
#include "train/stop_signal.h"

#include <gtest/gtest.h>

#include <csignal>

#include "support/world.h"

namespace argosy::train {
namespace {

using ::argosy::testing::world;

// What a process received stays with it, so this is one test.
TEST(StopSignal, AllAgreeOneStepAfterTheFirstSignal) {
    StopSignal stop(world());
    const bool signalled = world().rank() == world().size() - 1;
    constexpr int kSignalStep = 4;
    for (int step = 1; step <= kSignalStep; ++step) {
        if (step == kSignalStep && signalled) std::raise(SIGTERM);
        EXPECT_FALSE(stop.agreed()) << "step " << step;
    }
    EXPECT_EQ(StopSignal::received(), signalled ? SIGTERM : 0);
    EXPECT_TRUE(stop.agreed());
    EXPECT_TRUE(stop.agreed());

    if (signalled) std::raise(SIGUSR1);
    EXPECT_EQ(StopSignal::received(), signalled ? SIGUSR1 : 0);

    // Another of this process hears of it too, but only from its second call on.
    StopSignal late(world());
    EXPECT_FALSE(late.agreed());
    EXPECT_TRUE(late.agreed());
}

}  // namespace
}  // namespace argosy::train
