// Where a rank is within a graph, from marks that a test sets in place of a GPU.
#include "comm/launch_line.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace argosy::comm {
namespace {

constexpr double kElapsed = 5;

class LaunchLineTest : public ::testing::Test {
  protected:
    /// One launch outside of a graph, of which nothing is left; and a graph of two.
    void SetUp() override {
        line_.begin({"broadcast", 1});
        line_.returned();
        for (size_t i = 0; i < 2; ++i) {
            line_.record({i == 0 ? "all-gather" : "reduce-scatter", 8}, &begun_[i]);
            line_.recorded(&done_[i]);
        }
    }
    void launch() {
        begun_ = done_ = {std::byte{0}, std::byte{0}};
        line_.graph_begins();
        line_.graph_launched();
    }
    static void set(std::byte& mark) { mark = std::byte{1}; }

    LaunchLine line_{"dp_shard", {0, 3}, 0};
    std::vector<std::byte> begun_ = std::vector<std::byte>(2), done_ = std::vector<std::byte>(2);
};

TEST_F(LaunchLineTest, WhatIsOnlyRecordedHasNoNumber) {
    set(begun_[0]);  // as in a launch that is not this line's any more
    const auto seen = line_.look(kElapsed);
    EXPECT_EQ(seen.num_begun, 1);
    EXPECT_FALSE(seen.under_way);
}

TEST_F(LaunchLineTest, ARankHasComeToWhatItsGpuHasComeTo) {
    launch();
    line_.begin({"all-reduce", 2});  // the host is ahead
    auto seen = line_.look(kElapsed);
    EXPECT_EQ(seen.num_begun, 1);
    EXPECT_EQ(seen.last.kind, "broadcast");

    set(begun_[0]);
    seen = line_.look(kElapsed);
    EXPECT_EQ(seen.num_begun, 2);
    EXPECT_EQ(seen.last.kind, "all-gather");

    set(done_[0]);
    EXPECT_EQ(line_.look(kElapsed).num_begun, 2);

    set(begun_[1]);
    set(done_[1]);
    seen = line_.look(kElapsed);
    EXPECT_EQ(seen.num_begun, 4);
    EXPECT_EQ(seen.last.kind, "all-reduce");
    ASSERT_TRUE(seen.under_way);  // the call
    EXPECT_EQ(seen.under_way->number, 3);
}

TEST_F(LaunchLineTest, AnOperationWaitsWhileItIsBegunAndNotDone) {
    launch();
    EXPECT_FALSE(line_.look(kElapsed).under_way);
    set(begun_[0]);
    EXPECT_EQ(line_.look(kElapsed).under_way->waited_seconds, kElapsed);
    auto seen = line_.look(kElapsed);
    EXPECT_EQ(seen.under_way->waited_seconds, 2 * kElapsed);
    EXPECT_EQ(seen.under_way->number, 1);
    EXPECT_EQ(seen.under_way->work.kind, "all-gather");

    set(done_[0]);
    EXPECT_FALSE(line_.look(kElapsed).under_way);
    set(begun_[1]);
    seen = line_.look(kElapsed);
    EXPECT_EQ(seen.under_way->waited_seconds, kElapsed);
    EXPECT_EQ(seen.under_way->number, 2);
}

TEST_F(LaunchLineTest, NumbersGoOnWithEachLaunch) {
    launch();
    for (size_t i = 0; i < 2; ++i) {
        set(begun_[i]);
        set(done_[i]);
    }
    EXPECT_EQ(line_.look(kElapsed).num_begun, 3);
    launch();
    set(begun_[0]);
    EXPECT_EQ(line_.look(kElapsed).under_way->number, 3);
    line_.forget_graph();
    EXPECT_EQ(line_.look(kElapsed).num_begun, 5);
}

}  // namespace
}  // namespace argosy::comm
