#include "plan/simulate.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "expect_error.h"

namespace argosy::plan {
namespace {

using Kind = Event::Kind;

/// A trace made by calls in the order of the program.
struct Trace : RankTrace {
    explicit Trace(int number = 0) { rank = number; }
    Trace& compute(double seconds, bool is_optimizer = false, double host_seconds = 0) {
        events.push_back({.kind = Kind::Compute,
                          .seconds = seconds,
                          .host_seconds = host_seconds,
                          .is_optimizer = is_optimizer});
        return *this;
    }
    Trace& dense(double seconds, double dense_seconds) {
        events.push_back({.kind = Kind::Compute, .seconds = seconds, .dense_seconds = dense_seconds});
        return *this;
    }
    Trace& launch(Launch launch) {
        events.push_back({.kind = Kind::Launch, .launch = std::ssize(launches)});
        launches.push_back(std::move(launch));
        return *this;
    }
    Trace& wait(int64_t number) {
        events.push_back({.kind = Kind::Wait, .launch = number});
        return *this;
    }
};

std::vector<RankTime> simulate(const std::vector<RankTrace>& traces) { return simulate_step(traces); }

TEST(SimulateStep, HidesWhatRunsBesideComputation) {
    Trace rank;
    rank.launch({.group = "dp_shard", .seconds = 3}).compute(2).wait(0).compute(5, /*is_optimizer=*/true);
    const RankTime time = simulate({rank})[0];
    EXPECT_EQ(time.total, 8);
    EXPECT_EQ(time.compute, 2);
    EXPECT_EQ(time.optimizer, 5);
    EXPECT_EQ(time.exposed, (std::map<std::string, double>{{"dp_shard", 1}}));
}

// A collective of 3 s holds a quarter of the multiprocessors: in its 3 s, products do the work of 2.25 s.
TEST(SimulateStep, ProductsBesideACollectiveTakeLonger) {
    Trace rank;
    rank.launch({.group = "dp_shard", .seconds = 3, .held = 0.25}).dense(5, /*dense_seconds=*/5).wait(0);
    EXPECT_DOUBLE_EQ(simulate({rank})[0].total, 5.75);
    // Two lanes hold more, the first for 1 s. What is not dense is as fast as alone.
    Trace two;
    two.launch({.group = "tp", .seconds = 1, .held = 0.25})
        .launch({.group = "dp_shard", .seconds = 3, .held = 0.25})
        .dense(5, 5);
    EXPECT_DOUBLE_EQ(simulate({two})[0].total, 3 + (5 - 0.5 - 2 * 0.75));
    Trace pass;
    pass.launch({.group = "dp_shard", .seconds = 3, .held = 0.25}).compute(5);
    EXPECT_EQ(simulate({pass})[0].total, 5);
    // Half of it is dense: 1 s alone takes 0.5 + 0.5 / 0.75.
    Trace half;
    half.launch({.group = "dp_shard", .seconds = 100, .held = 0.25}).dense(6, 3);
    EXPECT_DOUBLE_EQ(simulate({half})[0].total, 7);
}

TEST(SimulateStep, WaitsForTheHost) {
    Trace rank;
    rank.compute(1, false, /*host_seconds=*/2)
        .compute(3, false, 2)
        .compute(4, false, 0)
        .compute(0.5, true, 20);
    const RankTime time = simulate({rank})[0];
    // Launched at 2 and 4, and the update, which waits for the device, at 9 + 20. The device ends at 2, 5,
    // 9, 29.
    EXPECT_DOUBLE_EQ(time.total, 29);
    EXPECT_DOUBLE_EQ(time.compute, 8);
    EXPECT_DOUBLE_EQ(time.launches, 1);
    EXPECT_DOUBLE_EQ(time.optimizer, 20);
    EXPECT_DOUBLE_EQ(time.sum(), time.total);
    // The update is launched after the rest has ended: a graph's time hides none of it.
    Trace graph;
    graph.compute(100).compute(0.5, true, 20).compute(0.5, true, 1);
    EXPECT_DOUBLE_EQ(simulate({graph})[0].total, 121);
}

TEST(SimulateStep, RunsTheLaunchesOfAGroupOneAfterAnother) {
    Trace rank;
    rank.launch({.group = "dp_shard", .seconds = 3})
        .launch({.group = "dp_shard", .seconds = 3})
        .launch({.group = "tp", .seconds = 4})
        .wait(2)
        .wait(1);
    const RankTime time = simulate({rank})[0];
    EXPECT_EQ(time.total, 6);
    EXPECT_EQ(time.exposed, (std::map<std::string, double>{{"dp_shard", 2}, {"tp", 4}}));
}

TEST(SimulateStep, TheWaitOfASenderIsNoBubble) {
    Trace first(0), second(4);
    first.launch({.group = "pp", .seconds = 1, .send_to = {4}}).compute(0.5).wait(0);
    second.compute(2).launch({.group = "pp", .seconds = 1, .receive_from = {0}}).wait(0);
    const std::vector<RankTime> times = simulate({first, second});
    for (const RankTime& time : times) {
        EXPECT_EQ(time.total, 3);
        EXPECT_EQ(time.bubble, 0);
    }
    EXPECT_EQ(times[0].exposed.at("pp"), 2.5) << "until the receiver is ready, and the transfer";
    EXPECT_EQ(times[1].exposed.at("pp"), 1);
}

TEST(SimulateStep, StartsAMessageWhenBothRanksAreReady) {
    Trace first(0), second(4);
    first.compute(2).launch({.group = "pp", .seconds = 1, .send_to = {4}}).compute(3).wait(0);
    second.launch({.group = "pp", .seconds = 1, .receive_from = {0}}).compute(0.5).wait(0).compute(1);
    const std::vector<RankTime> times = simulate({first, second});
    EXPECT_EQ(times[0].total, 5);
    EXPECT_EQ(times[1].total, 4);
    EXPECT_EQ(times[1].bubble, 1.5);
    EXPECT_EQ(times[1].exposed, (std::map<std::string, double>{{"pp", 1}}));
}

TEST(SimulateStep, TakesMessagesOfOtherAxesToMeetAtOnce) {
    Trace rank;
    rank.launch({.group = "cp", .seconds = 2, .send_to = {1}, .receive_from = {3}}).compute(1).wait(0);
    EXPECT_EQ(simulate({rank})[0].total, 2);
}

TEST(SimulateStep, RefusesRanksThatWaitForEachOther) {
    Trace first(0), second(1);
    first.launch({.group = "pp", .seconds = 1, .receive_from = {1}}).wait(0);
    second.launch({.group = "pp", .seconds = 1, .receive_from = {0}}).wait(0);
    EXPECT_ERROR(simulate({first, second}), RunError, "rank 0 waits for ever in a planned step");
}

}  // namespace
}  // namespace argosy::plan
