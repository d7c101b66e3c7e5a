// The limit that ends a run, and the step at which it does, by a clock that the tests set.
#include "train/run_limits.h"

#include <gtest/gtest.h>

#include <limits>

#include "expect_error.h"

namespace argosy::train {
namespace {

constexpr int64_t kTokensPerStep = 100;

RunLimits with_tokens(int64_t steps, int64_t max_tokens) {
    return {{.steps = steps, .max_tokens = max_tokens, .tokens_per_step = kTokensPerStep}, /*started=*/0};
}

TEST(RunLimits, TokensAreRoundedUpToWholeSteps) {
    const std::pair<int64_t, int64_t> expected[] = {{1, 1}, {99, 1}, {100, 1}, {101, 2}, {200, 2}, {450, 5}};
    for (const auto& [tokens, steps] : expected)
        EXPECT_EQ(with_tokens(50, tokens).final_step(), steps) << tokens;
    EXPECT_EQ(with_tokens(3, 450).final_step(), 3);
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    EXPECT_EQ(final_step({.steps = 50, .max_tokens = kMost}, {.step = 7}), 50);
    EXPECT_EQ(with_tokens(kMost, kMost).final_step(), kMost / 100 + 1);
}

TEST(RunLimits, SayWhichOneEndedTheRun) {
    const auto at = [](int64_t step) { return Position{step, 0, step * kTokensPerStep}; };
    EXPECT_EQ(with_tokens(50, 450).ending(at(5)),
              "done after step 5: training.max_tokens = 450 is reached with 500 tokens");
    EXPECT_EQ(with_tokens(5, 450).ending(at(5)), "done after step 5: training.steps = 5");
    EXPECT_EQ(with_tokens(4, 450).ending(at(4)), "done after step 4: training.steps = 4");
}

/// A resumed run counts the tokens before, whatever its batch size was then.
TEST(RunLimits, AResumedRunHasItsTokensAlready) {
    RunLimitsOptions options{.steps = 50, .max_tokens = 450, .tokens_per_step = kTokensPerStep};
    const auto end = [&](int64_t step, int64_t tokens) { return final_step(options, {step, 0, tokens}); };
    EXPECT_EQ(end(2, 200), 5) << "as uninterrupted";
    EXPECT_EQ(end(2, 100), 6) << "with half the batch so far";
    EXPECT_EQ(end(2, 449), 3);
    EXPECT_EQ(end(2, 450), 2) << "nothing is left";
    EXPECT_EQ(end(9, 900), 9);
    EXPECT_EQ(end(49, 100), 50);
    options.max_tokens.reset();
    EXPECT_EQ(end(60, 6000), 50) << "and more than was wanted is done";
}

class MaxTime : public ::testing::Test {
  protected:
    RunLimits limits(double seconds, const std::string& text) {
        const RunLimitsOptions options{.steps = 10000, .max_time = {{seconds, text}}};
        return {options, /*started=*/now_, {}, [this] { return now_; }};
    }

    StopReason step(RunLimits& limits, double seconds) {
        limits.start_step();
        now_ += seconds;
        return limits.finish_step();
    }

    double now_ = 1000;
};

TEST_F(MaxTime, EndsBeforeTheStepThatWouldNotFit) {
    RunLimits run = limits(100, "1m40s");
    now_ += 50;  // setting up is not a step
    EXPECT_EQ(step(run, 10), StopReason::None);
    EXPECT_DOUBLE_EQ(run.seconds_left(), 40);
    EXPECT_EQ(step(run, 10), StopReason::None);
    EXPECT_EQ(step(run, 10), StopReason::None);
    EXPECT_EQ(step(run, 10), StopReason::None) << "a step of 10 s fits into 10 s";
    now_ += 0.1;
    EXPECT_EQ(step(run, 0), StopReason::OutOfTime);
    EXPECT_EQ(
        run.ending({.step = 5}),
        "done after step 5: 9.9 s remain of training.max_time = 1m40s, and the next step may take 10.0 s");
}

TEST_F(MaxTime, ReckonsWithTheLongestOfTheNewestSteps) {
    RunLimits run = limits(100, "1m40s");
    EXPECT_EQ(step(run, 30), StopReason::None);
    for (int i = 0; i < 15; ++i) EXPECT_EQ(step(run, 1), StopReason::None);
    now_ += 30;
    EXPECT_EQ(step(run, 1), StopReason::None) << "the long one is forgotten";
    EXPECT_EQ(step(run, 13), StopReason::OutOfTime);
}

TEST_F(MaxTime, ThatIsOverGivesOneStepAll) {
    RunLimits run = limits(1, "1s");
    now_ += 5;
    EXPECT_EQ(step(run, 1), StopReason::OutOfTime);
    EXPECT_EQ(run.ending({.step = 1}),
              "done after step 1: 0.0 s remain of training.max_time = 1s, and the next step may take 1.0 s");
}

TEST_F(MaxTime, UnsetNeverEnds) {
    RunLimits run({.steps = 10000}, 0, {}, [this] { return now_; });
    EXPECT_EQ(step(run, 1e9), StopReason::None);
    EXPECT_EQ(run.seconds_left(), std::numeric_limits<double>::infinity());
    EXPECT_EQ(run.final_step(), 10000);
}

}  // namespace
}  // namespace argosy::train
