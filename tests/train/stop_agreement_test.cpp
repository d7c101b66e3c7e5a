// A signal to one rank stops all ranks at the same step.
#include "train/run_limits.h"

#include <gtest/gtest.h>

#include <csignal>

#include "base/program.h"
#include "support/world.h"

namespace argosy::train {
namespace {

using ::argosy::testing::world;

// A process never forgets a signal, so this is one test.
TEST(StopAgreement, AllRanksStopInTheStepInWhichOneAsks) {
    catch_stop_requests(StopSignals::Scheduler);
    StopAgreement stop(world());
    const bool last = world().rank() == world().size() - 1;
    const StopReason late = last ? StopReason::OutOfTime : StopReason::None;
    for (int step = 1; step <= 3; ++step) EXPECT_EQ(stop.agreed(), StopReason::None) << "step " << step;
    EXPECT_EQ(stop.agreed(late), StopReason::OutOfTime);
    EXPECT_EQ(stop.agreed(), StopReason::None) << "a wish is of its step";
    stop.begin();
    if (last) std::raise(SIGTERM);
    EXPECT_EQ(stop.finish(), StopReason::None) << "too late for this exchange";
    EXPECT_EQ(stop.agreed(), StopReason::Signal);
    if (last) std::raise(SIGUSR1);  // must not end the process either
    EXPECT_EQ(stop.agreed(world().rank() == 0 ? StopReason::OutOfTime : StopReason::None),
              StopReason::Signal);
}

}  // namespace
}  // namespace argosy::train
