// A signal that one rank gets stops all ranks, at the same step.
#include "train/stop_signal.h"

#include <gtest/gtest.h>

#include <csignal>

#include "base/stop_request.h"
#include "support/world.h"

namespace argosy::train {
namespace {

using ::argosy::testing::world;

// What a process received stays with it, so this is one test.
TEST(StopSignal, AllAgreeInTheStepInWhichOneRankWishes) {
    catch_stop_requests(StopRequests::Run);
    StopSignal stop(world());
    const bool last = world().rank() == world().size() - 1;
    const StopWish late = last ? StopWish::OutOfTime : StopWish::None;
    for (int step = 1; step <= 3; ++step) EXPECT_EQ(stop.agreed(), StopWish::None) << "step " << step;
    EXPECT_EQ(stop.agreed(late), StopWish::OutOfTime);
    EXPECT_EQ(stop.agreed(), StopWish::None) << "a wish is of its step";
    if (last) std::raise(SIGTERM);
    EXPECT_EQ(stop.agreed(), StopWish::Signal);
    if (last) std::raise(SIGUSR1);  // must not end the process either
    EXPECT_EQ(stop.agreed(world().rank() == 0 ? StopWish::OutOfTime : StopWish::None), StopWish::Signal);
}

}  // namespace
}  // namespace argosy::train
