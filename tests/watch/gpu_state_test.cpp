// The time that a rank gives the watchdogs to report the root cause of its error.
#include "watch/gpu_state.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "watch/watchdog_state.h"

namespace argosy::watch {
namespace {

TEST(GpuState, WaitsForTheRootCauseAsLongAsTheWatchdogSays) {
    constexpr double kSeconds = 0.3, kMaxSeconds = 20;
    GpuState state;
    state.set_seconds_to_root_cause(kSeconds);
    const double start = seconds_now();
    EXPECT_THROW(state.run_unless_ending([] { throw nccl::PeerError("gone"); }), nccl::PeerError);
    const double seconds = seconds_now() - start;
    EXPECT_GE(seconds, kSeconds);
    EXPECT_LT(seconds, kMaxSeconds);
}

/// Rank 0 asks for reports for up to twice `answer`, then for their operations, and no rank takes it for
/// silent meanwhile.
TEST(Bounds, LeaveTimeForTheWholeSearch) {
    for (const int num_ranks : {1, 8, 1024, 16384, 100000}) {
        for (const double timeout : {0.5, 2.0, 600.0}) {
            const Bounds bounds(timeout, num_ranks);
            EXPECT_LE(bounds.answer, timeout);
            EXPECT_GT(bounds.root_cause, 2 * bounds.answer + 2 * bounds.comparison);
            EXPECT_GT(bounds.silence, 2 * bounds.comparison);
            EXPECT_LE(bounds.comparison, 10);
        }
    }
}

}  // namespace
}  // namespace argosy::watch
