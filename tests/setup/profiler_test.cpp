#include "setup/profiler.h"

#include <gtest/gtest.h>

namespace argosy::setup {
namespace {

/// The rounds of a rank whose clock shows `offset` less than rank 0's.
Rounds shifted(Rounds rounds, double offset) {
    for (auto* const times : {&rounds.entered, &rounds.left}) {
        for (double& seconds : *times) seconds -= offset;
    }
    return rounds;
}

// By rank 0's clock. Both ranks leave a round some time after the later of them has entered it.
const Rounds kRank0{{0, 10, 20}, {1, 10.5, 29}}, kRank1{{0.8, 7, 20.2}, {1.1, 10.2, 29}};

TEST(ClockOffset, LiesWithinTheBoundsOfTheFastRounds) {
    for (const double offset : {0.0, 5.0, -1234.5}) {
        // At most 0.2 more, by the first round, in which rank 1 came last; at most 0.2 less, by the second.
        EXPECT_NEAR(clock_offset(kRank0, shifted(kRank1, offset)), offset, 0.2);
    }
}

TEST(ClockOffset, IsNotMovedByASlowRound) {
    Rounds first = kRank0, second = kRank1;
    const double fast = clock_offset(first, second);
    first.entered.push_back(30), first.left.push_back(90);
    second.entered.push_back(80), second.left.push_back(130);
    EXPECT_EQ(clock_offset(first, second), fast);
}

}  // namespace
}  // namespace argosy::setup
