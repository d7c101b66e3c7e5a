#include "train/nonfinite_guard.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "expect_error.h"

namespace argosy::train {
namespace {

const StepResult kGood{.loss = 2, .grad_norm = 3, .skipped = false};
const StepResult kBad{.loss = std::nan(""), .grad_norm = 4, .skipped = true};

/// As the loop does, with the metrics written in between.
void take(NonfiniteGuard& guard, int64_t step, const StepResult& result) {
    guard.count(result);
    guard.check(step, result);
}

TEST(NonfiniteGuard, EndsTheRunAtTheLastInARow) {
    NonfiniteGuard guard(3);
    take(guard, 7, kBad);
    take(guard, 8, kBad);
    EXPECT_ERROR(take(guard, 9, kBad), JobError, "step 9", "the loss is nan", "norm 4", "update 3 in a row",
                 "training.max_nonfinite_steps", "optimizer.lr");
}

TEST(NonfiniteGuard, AGoodStepStartsTheCountAgain) {
    NonfiniteGuard guard(2);
    for (int step = 0; step < 10; ++step) {
        EXPECT_NO_THROW(take(guard, step, kBad));
        EXPECT_NO_THROW(take(guard, step, kGood));
    }
    EXPECT_EQ(guard.num_skipped(), 10);
    take(guard, 20, kBad);
    EXPECT_ERROR(take(guard, 21, kBad), JobError, "step 21", "update 2 in a row");
    EXPECT_EQ(guard.num_skipped(), 12);
}

TEST(NonfiniteGuard, OneMayBeTooMany) {
    NonfiniteGuard guard(1);
    EXPECT_NO_THROW(take(guard, 1, kGood));
    EXPECT_EQ(guard.num_skipped(), 0);
    EXPECT_ERROR(take(guard, 2, kBad), JobError, "update 1 in a row");
}

}  // namespace
}  // namespace argosy::train
