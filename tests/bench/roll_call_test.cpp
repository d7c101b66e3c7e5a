// A rank that stays away is named, whether the others wait where all meet or within a collective.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "bench/bench_ranks.h"

namespace argosy::bench {
namespace {

/// Ranks that wait spin, and outnumber the cores: none may seem late because others keep it from its core.
constexpr double kPatienceSeconds = 2;
constexpr std::chrono::seconds kAway{5};  // the others wait, and then call the roll

class RollCallTest : public ::testing::Test {
  protected:
    void SetUp() override {
        if (size_ != 3) GTEST_SKIP() << "waits for seconds: once is enough, on three ranks";
    }
    /// Everyone is here again.
    void TearDown() override { EXPECT_TRUE(finished_within(world_.barrier(), 30)); }

    static void stay_away() { std::this_thread::sleep_for(kAway); }
    std::string late_rank() const {
        return "; missing: rank 2. Dead, stuck or much slower: rank 2 (process " +
               std::to_string(roll_.ranks()[2].process) + " on ";
    }

    mpi::Comm world_ = mpi::Comm::world();
    RollCall roll_{world_, kPatienceSeconds};
    int rank_ = world_.rank(), size_ = world_.size();
};

TEST_F(RollCallTest, LetsAllGoWhoCome) {
    for (int i = 0; i < 3; ++i) EXPECT_NO_THROW(roll_.assemble("a test"));
}

TEST_F(RollCallTest, NamesWhoDoesNotCome) {
    if (rank_ == 2) {
        stay_away();
        return;
    }
    try {
        roll_.assemble("a test");
        FAIL() << "nobody was missed";
    } catch (const TimeoutError& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find(late_rank()), std::string::npos) << text;
        EXPECT_NE(text.find(" 2 s"), std::string::npos) << text;
        EXPECT_EQ(error.code(), ExitCode::Watchdog);
    }
}

TEST_F(RollCallTest, NamesWhoIsMissingInACollective) {
    if (rank_ == 2) {
        stay_away();
        return;
    }
    const TimeoutError error = roll_.late("all_reduce of 8 bytes");
    const std::string text = error.what();
    EXPECT_NE(text.find("all_reduce of 8 bytes"), std::string::npos) << text;
    EXPECT_NE(text.find(late_rank()), std::string::npos) << text;
}

/// What the one that is not there keeps from each other: ranks 0 and 1 wait in different places.
TEST_F(RollCallTest, DoesNotBlameARankThatWaitsElsewhere) {
    const auto message_where_all_meet = [](const RollCall& roll) -> std::string {
        try {
            roll.assemble("a test");
            return "nobody was missed";
        } catch (const TimeoutError& error) {
            return error.what();
        }
    };
    for (const int in_collective : {0, 1}) {
        const RollCall roll(world_, kPatienceSeconds);
        if (rank_ == 2) {
            stay_away();
        } else {
            const std::string text = rank_ == in_collective ? roll.late("all_reduce of 8 bytes").what()
                                                            : message_where_all_meet(roll);
            EXPECT_NE(text.find(late_rank()), std::string::npos) << text;
        }
        EXPECT_TRUE(finished_within(world_.barrier(), 30));
    }
}

TEST_F(RollCallTest, BlamesWhatLiesBetweenWhenAllWait) {
    const std::string text = roll_.late("all_reduce of 8 bytes").what();
    EXPECT_NE(text.find("all ranks wait"), std::string::npos) << text;
}

}  // namespace
}  // namespace argosy::bench
