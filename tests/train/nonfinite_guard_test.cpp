#include "train/nonfinite_guard.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "expect_error.h"

namespace argosy::train {
namespace {

const StepResult kGood{.loss = 2, .grad_norm = 3, .skipped = false};
const StepResult kBad{.loss = std::nan(""), .grad_norm = 4, .skipped = true};

TEST(NonfiniteGuard, EndsTheRunAtTheLastInARow) {
    NonfiniteGuard guard(3);
    guard.observe(7, kBad);
    guard.observe(8, kBad);
    EXPECT_ERROR(guard.observe(9, kBad), RunError, "step 9", "the loss is nan", "norm 4", "update 3 in a row",
                 "training.max_nonfinite_steps", "optimizer.lr");
}

TEST(NonfiniteGuard, AGoodStepStartsTheCountAgain) {
    NonfiniteGuard guard(2);
    for (int step = 0; step < 10; ++step) {
        EXPECT_NO_THROW(guard.observe(step, kBad));
        EXPECT_NO_THROW(guard.observe(step, kGood));
    }
    EXPECT_EQ(guard.num_skipped(), 10);
    guard.observe(20, kBad);
    EXPECT_ERROR(guard.observe(21, kBad), RunError, "step 21", "update 2 in a row");
    EXPECT_EQ(guard.num_skipped(), 12);
}

TEST(NonfiniteGuard, OneMayBeTooMany) {
    NonfiniteGuard guard(1);
    EXPECT_NO_THROW(guard.observe(1, kGood));
    EXPECT_EQ(guard.num_skipped(), 0);
    EXPECT_ERROR(guard.observe(2, kBad), RunError, "update 1 in a row");
}

}  // namespace
}  // namespace argosy::train
