#include "preflight/preflight.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "expect_error.h"

namespace argosy::preflight {
namespace {

/// Ranks outnumber the cores, so that answers may be late.
constexpr double kTimeout = 30, kTolerance = 1;

double clock_ahead() { return time_of_day() + 1000; }
double clock_behind() { return time_of_day() - 50; }

TEST(ClockOffsets, OfOneMachineAreNone) {
    const mpi::Comm world = mpi::Comm::world();
    const double start = seconds_now();
    const std::vector<double> offsets = clock_offsets(bench::ControlChannel(world, kTimeout));
    EXPECT_LT(seconds_now() - start, 10);
    ASSERT_EQ(std::ssize(offsets), world.size());
    for (const double offset : offsets) EXPECT_NEAR(offset, 0, kTolerance);
}

TEST(ClockOffsets, AreThoseOfEachRankOnAllRanks) {
    const mpi::Comm world = mpi::Comm::world();
    const std::vector<Clock> clocks = {time_of_day, clock_ahead, clock_behind, time_of_day};
    const double expected[] = {0, 1000, -50, 0};
    const std::vector<double> offsets =
        clock_offsets(bench::ControlChannel(world, kTimeout), clocks[world.rank() % 4]);
    for (int rank = 0; rank < world.size(); ++rank)
        EXPECT_NEAR(offsets[rank], expected[rank % 4], kTolerance);
}

/// Of four ranks, three of which wait for the absent one.
TEST(ClockOffsets, NameTheAbsentRank) {
    const mpi::Comm world = mpi::Comm::world();
    if (world.size() != 4) GTEST_SKIP() << "waits for seconds: once is enough, on four ranks";
    constexpr double kShortTimeout = 2;
    const bench::ControlChannel control(world, kShortTimeout);
    if (world.rank() == 1) {
        std::this_thread::sleep_for(std::chrono::seconds(6));
    } else {
        EXPECT_ERROR(clock_offsets(control), TimeoutError, "; missing: rank 1. Dead");
    }
    EXPECT_TRUE(bench::finished_within(mpi::Comm::world().barrier(), kTimeout));
}

}  // namespace
}  // namespace argosy::preflight
