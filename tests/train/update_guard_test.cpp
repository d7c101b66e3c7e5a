#include "train/update_guard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "expect_error.h"

namespace argosy::train {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

const StepResult kGood{.loss = 2, .grad_norm = 3, .skipped = false};
const StepResult kBad{.loss = std::nan(""), .grad_norm = 4, .skipped = true};

/// Takes a step as the training loop does, with the metrics written in between.
void take(UpdateGuard& guard, int64_t step, const StepResult& result) {
    guard.count(result);
    guard.check(step, result);
}

UpdateGuard nonfinite_guard(int max_nonfinite_steps) {
    return UpdateGuard({.max_nonfinite_steps = max_nonfinite_steps});
}

TEST(NonfiniteSteps, EndTheRunAtTheLastInARow) {
    UpdateGuard guard = nonfinite_guard(3);
    take(guard, 7, kBad);
    take(guard, 8, kBad);
    EXPECT_ERROR(take(guard, 9, kBad), JobError, "step 9", "the loss is nan", "norm 4", "update 3 in a row",
                 "training.max_nonfinite_steps", "optimizer.lr");
}

TEST(NonfiniteSteps, AGoodStepStartsTheCountAgain) {
    UpdateGuard guard = nonfinite_guard(2);
    for (int step = 0; step < 10; ++step) {
        EXPECT_NO_THROW(take(guard, step, kBad));
        EXPECT_NO_THROW(take(guard, step, kGood));
    }
    EXPECT_EQ(guard.num_skipped(), 10);
    take(guard, 20, kBad);
    EXPECT_ERROR(take(guard, 21, kBad), JobError, "step 21", "update 2 in a row");
    EXPECT_EQ(guard.num_skipped(), 12);
}

TEST(NonfiniteSteps, OneMayBeTooMany) {
    UpdateGuard guard = nonfinite_guard(1);
    EXPECT_NO_THROW(take(guard, 1, kGood));
    EXPECT_EQ(guard.num_skipped(), 0);
    EXPECT_ERROR(take(guard, 2, kBad), JobError, "update 1 in a row");
}

/// A guard that has seen four updates: losses of mean 4 and deviation 1.155, norms ten times that.
UpdateGuard warm_guard(UpdateGuardOptions options) {
    options.window = options.warmup_steps = 4;
    UpdateGuard guard(options);
    for (const double loss : {3.0, 5.0, 3.0, 5.0}) guard.count({.loss = loss, .grad_norm = 10 * loss});
    return guard;
}
const double kDeviation = std::sqrt(4.0 / 3);

StepResult spike_of(double loss) { return {.loss = loss, .grad_norm = 40, .skipped = true}; }

TEST(LossSpikes, LimitsFollowTheWindow) {
    const UpdateLimits both = warm_guard({.loss_zscore = 3, .grad_norm_zscore = 2}).limits();
    EXPECT_DOUBLE_EQ(both.loss, 4 + 3 * kDeviation);
    EXPECT_DOUBLE_EQ(both.grad_norm, 40 + 20 * kDeviation);
    const UpdateLimits one = warm_guard({.grad_norm_zscore = 2}).limits();
    EXPECT_EQ(one.loss, kInfinity);
    EXPECT_DOUBLE_EQ(one.grad_norm, 40 + 20 * kDeviation);
}

TEST(LossSpikes, NothingIsSkippedWhileOffOrNotWarm) {
    EXPECT_EQ(warm_guard({}).limits().loss, kInfinity);
    UpdateGuard cold({.loss_zscore = 3, .grad_norm_zscore = 3, .window = 9, .warmup_steps = 5});
    for (int i = 0; i < 4; ++i) {
        cold.count(kGood);
        EXPECT_EQ(cold.limits().loss, kInfinity);
        EXPECT_EQ(cold.limits().grad_norm, kInfinity);
    }
    cold.count(kGood);
    EXPECT_LT(cold.limits().loss, kInfinity);
}

TEST(LossSpikes, SkippedUpdatesDoNotMoveTheLimits) {
    UpdateGuard guard = warm_guard({.loss_zscore = 3});
    const double before = guard.limits().loss;
    guard.count(spike_of(100));
    guard.count(kBad);
    EXPECT_EQ(guard.limits().loss, before);
    guard.count({.loss = 4});
    EXPECT_NE(guard.limits().loss, before);
    EXPECT_EQ(guard.num_skipped(), 2);
}

TEST(LossSpikes, SayWhichValueWasTooLarge) {
    UpdateGuard guard = warm_guard({.loss_zscore = 3, .grad_norm_zscore = 3});
    const StepResult loss = spike_of(4 + 5 * kDeviation),
                     norm{.loss = 4, .grad_norm = 40 + 60 * kDeviation, .skipped = true};
    guard.count(loss);
    EXPECT_EQ(guard.reason(loss),
              "the loss 9.774 is 5.0 standard deviations above 4, the mean of the updates before");
    EXPECT_DOUBLE_EQ(guard.loss_zscore(loss), 5);
    EXPECT_DOUBLE_EQ(guard.grad_norm_zscore(loss), 0);
    guard.count(norm);
    EXPECT_EQ(guard.reason(norm),
              "the gradient norm 109.3 is 6.0 standard deviations above 40, the mean of the updates before");
}

TEST(LossSpikes, EndTheRunAtTheLastInARow) {
    UpdateGuard guard = warm_guard({.loss_zscore = 3, .max_skipped_steps = 2});
    take(guard, 5, spike_of(20));
    take(guard, 6, kGood);
    take(guard, 7, spike_of(20));
    EXPECT_ERROR(take(guard, 8, spike_of(30)), JobError, "step 8", "the loss 30 is", "update 2 in a row",
                 "loss_spike.max_skipped_steps", "skipped_updates.jsonl", "optimizer.lr");
}

TEST(LossSpikes, AreCountedApartFromNonfiniteSteps) {
    UpdateGuard guard = warm_guard({.loss_zscore = 3, .max_skipped_steps = 3});
    for (int i = 0; i < 2; ++i) {
        take(guard, i, spike_of(20));
        take(guard, i, kBad);
    }
    EXPECT_ERROR(take(guard, 9, spike_of(20)), JobError, "update 3 in a row", "loss_spike");
}

TEST(LossSpikes, ARestoredGuardDecidesAsTheOneBefore) {
    const UpdateGuardOptions options{
        .loss_zscore = 3, .window = 4, .warmup_steps = 4, .max_skipped_steps = 3};
    UpdateGuard guard = warm_guard(options);
    take(guard, 1, spike_of(20));
    take(guard, 2, kBad);
    UpdateGuard other(options);
    EXPECT_NE(other.limits().loss, guard.limits().loss);
    other.restore(guard.state());
    EXPECT_EQ(other.state(), guard.state());
    EXPECT_EQ(other.limits().loss, guard.limits().loss);
    EXPECT_EQ(other.num_skipped(), 2);
    take(other, 3, spike_of(20));
    EXPECT_ERROR(take(other, 4, spike_of(20)), JobError, "update 3 in a row", "loss_spike");
}

TEST(LossSpikes, ARestoredWindowMayBeShorter) {
    UpdateGuard guard({.loss_zscore = 3, .window = 8, .warmup_steps = 2});
    for (const double loss : {1., 2., 3., 4., 5., 6.}) guard.count({.loss = loss, .grad_norm = 10 * loss});
    UpdateGuard shorter({.loss_zscore = 3, .window = 3, .warmup_steps = 2});
    shorter.restore(guard.state());
    EXPECT_EQ(shorter.state().losses, (std::vector<double>{4, 5, 6}));
    EXPECT_EQ(shorter.state().grad_norms, (std::vector<double>{40, 50, 60}));
}

}  // namespace
}  // namespace argosy::train
