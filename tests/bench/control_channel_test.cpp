// An absent rank is named, whether the others wait in a barrier or in a collective.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "bench/bench_ranks.h"
#include "expect_error.h"

namespace argosy::bench {
namespace {

/// Waiting ranks spin and outnumber the cores, so a rank may get its core late.
constexpr double kTimeoutSeconds = 2;

class ControlChannelTest : public ::testing::Test {
  protected:
    void SetUp() override {
        if (size_ != 3) GTEST_SKIP() << "waits for seconds: once is enough, on three ranks";
    }
    /// All ranks wait for each other, so that the next test begins on all of them. A rank that a test leaves
    /// out of the control channel waits here meanwhile.
    void TearDown() override { EXPECT_TRUE(finished_within(world_.barrier(), 30)); }

    std::string late_rank() const {
        return "; missing: rank 2. Dead, stuck or much slower: rank 2 (process " +
               std::to_string(control_.ranks()[2].process) + " on ";
    }

    mpi::Comm world_ = mpi::Comm::world();
    ControlChannel control_{world_, kTimeoutSeconds};
    int rank_ = world_.rank(), size_ = world_.size();
};

TEST_F(ControlChannelTest, BarrierEndsWhenAllRanksCome) {
    for (int i = 0; i < 3; ++i) EXPECT_NO_THROW(control_.barrier("a test"));
}

TEST_F(ControlChannelTest, GathersTextsOfAnyLengthOnRank0) {
    for (int round = 0; round < 2; ++round) {
        const std::vector<std::string> texts = {"zero", "",
                                                std::string(3 << 20, static_cast<char>('a' + round))};
        EXPECT_EQ(control_.gather_texts(texts[rank_]), rank_ == 0 ? texts : std::vector<std::string>());
    }
}

TEST_F(ControlChannelTest, NamesTheRankWhoseTextIsMissing) {
    if (rank_ == 0) {
        EXPECT_ERROR(control_.gather_texts("zero"), TimeoutError, "texts", late_rank());
    }
    if (rank_ == 1) {
        EXPECT_EQ(control_.gather_texts("one"), std::vector<std::string>());
        EXPECT_ERROR(control_.barrier("a test"), TimeoutError, late_rank());
    }
}

/// The rank sleeps, so that its MPI makes no progress; in the other tests it waits in TearDown().
TEST_F(ControlChannelTest, NamesTheRankMissingInABarrier) {
    if (rank_ == 2) {
        std::this_thread::sleep_for(std::chrono::seconds(4));
        return;
    }
    try {
        control_.barrier("a test");
        FAIL() << "the barrier ended";
    } catch (const TimeoutError& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find(late_rank()), std::string::npos) << text;
        EXPECT_NE(text.find(" 2 s"), std::string::npos) << text;
        EXPECT_EQ(error.code(), ExitCode::Watchdog);
    }
}

TEST_F(ControlChannelTest, NamesTheRankMissingInACollective) {
    if (rank_ == 2) return;
    const TimeoutError error = control_.timeout_error("all_reduce of 8 bytes");
    const std::string text = error.what();
    EXPECT_NE(text.find("all_reduce of 8 bytes"), std::string::npos) << text;
    EXPECT_NE(text.find(late_rank()), std::string::npos) << text;
}

/// Ranks 0 and 1 wait in different operations for rank 2.
TEST_F(ControlChannelTest, DoesNotNameARankThatWaitsInAnotherOperation) {
    const auto message_of_barrier = [](const ControlChannel& control) -> std::string {
        try {
            control.barrier("a test");
            return "the barrier ended";
        } catch (const TimeoutError& error) {
            return error.what();
        }
    };
    for (const int in_collective : {0, 1}) {
        const ControlChannel control(world_, kTimeoutSeconds);
        if (rank_ != 2) {
            const std::string text = rank_ == in_collective
                                         ? control.timeout_error("all_reduce of 8 bytes").what()
                                         : message_of_barrier(control);
            EXPECT_NE(text.find(late_rank()), std::string::npos) << text;
        }
        EXPECT_TRUE(finished_within(world_.barrier(), 30));
    }
}

TEST_F(ControlChannelTest, NamesNoRankIfAllRanksWait) {
    const std::string text = control_.timeout_error("all_reduce of 8 bytes").what();
    EXPECT_NE(text.find("all ranks are waiting"), std::string::npos) << text;
}

}  // namespace
}  // namespace argosy::bench
