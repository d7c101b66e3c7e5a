#include "train/lr_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace argosy::train {
namespace {

LrScheduleOptions options(DecayShape shape, int64_t warmup_steps, int64_t total_steps) {
    return {.peak = 8, .warmup_steps = warmup_steps, .total_steps = total_steps, .shape = shape};
}

void expect_rates(const LrScheduleOptions& options, const std::vector<double>& expected) {
    const LrSchedule schedule(options);
    for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(schedule.at_step(static_cast<int64_t>(i) + 1), expected[i], 1e-12) << "step " << i + 1;
    }
}

TEST(LrSchedule, WarmsUpThenFallsLinearly) {
    expect_rates(options(DecayShape::Linear, 4, 8), {2, 4, 6, 8, 8, 6, 4, 2, 0, 0});
}

TEST(LrSchedule, FallsAsACosine) {
    const double root = std::numbers::sqrt2;
    expect_rates(options(DecayShape::Cosine, 0, 4), {8, 4 + 2 * root, 4, 4 - 2 * root, 0, 0});
}

TEST(LrSchedule, FallsAsASquareRoot) {
    expect_rates(options(DecayShape::Sqrt, 0, 4),
                 {8, 4, 8 * (1 - std::numbers::sqrt2 / 2), 8 * (1 - std::numbers::sqrt3 / 2), 0, 0});
}

TEST(LrSchedule, NoWarmUpStartsAtThePeak) { expect_rates(options(DecayShape::Linear, 0, 2), {8, 4, 0}); }

TEST(LrSchedule, DecayRatioZeroStaysAtThePeak) {
    LrScheduleOptions constant = options(DecayShape::Cosine, 2, 5);
    constant.decay_ratio = 0;
    expect_rates(constant, {4, 8, 8, 8, 8, 8, 8});
    EXPECT_EQ(LrSchedule(constant).at_step(1000000), 8);
}

// The last three of steps 1..10 decay: the first of them is still at the peak, and step 11 would be at the
// end.
TEST(LrSchedule, DecayRatioIsTheLastPart) {
    LrScheduleOptions late = options(DecayShape::Linear, 2, 10);
    late.decay_ratio = 0.3;
    expect_rates(late, {4, 8, 8, 8, 8, 8, 8, 8, 8.0 * 2 / 3, 8.0 / 3, 0});
}

TEST(LrSchedule, DecayRatioOneLeavesTheWarmUpItsSteps) {
    LrScheduleOptions whole = options(DecayShape::Linear, 4, 8);
    whole.decay_ratio = 1;
    expect_rates(whole, {2, 4, 6, 8, 8, 6, 4, 2, 0});
}

TEST(LrSchedule, EndsAtTheMinimumFactor) {
    LrScheduleOptions bounded = options(DecayShape::Linear, 0, 4);
    bounded.min_factor = 0.25;
    expect_rates(bounded, {8, 6.5, 5, 3.5, 2, 2, 2});
    bounded.shape = DecayShape::Cosine;
    EXPECT_NEAR(LrSchedule(bounded).at_step(3), 8 * (0.25 + 0.75 * 0.5), 1e-12);
    bounded.min_factor = 1;
    expect_rates(bounded, {8, 8, 8, 8, 8, 8});
}

TEST(LrSchedule, ARunThatIsAllWarmUp) {
    expect_rates(options(DecayShape::Linear, 10, 4), {0.8, 1.6, 2.4, 3.2, 4.0});
    expect_rates(options(DecayShape::Linear, 5, 5), {1.6, 3.2, 4.8, 6.4, 8.0});
}

/// TorchTitan's factor of the peak at step `step`, from its description (since its pull request 1284 of June
/// 2025). Its round() is Python's: halves to
/// even.
double published(const LrScheduleOptions& options, int64_t step) {
    const int64_t warmup = options.warmup_steps, total = options.total_steps;
    int64_t decay_steps = total - warmup;
    if (options.decay_ratio) {
        const auto rounded =
            static_cast<int64_t>(std::nearbyint(static_cast<double>(total) * *options.decay_ratio));
        decay_steps = std::min(rounded, total - warmup);
    }
    const int64_t from_zero = step - 1, stable_steps = total + 1 - warmup - decay_steps;
    if (from_zero < warmup) return static_cast<double>(from_zero + 1) / static_cast<double>(warmup);
    if (from_zero < warmup + stable_steps) return 1;
    const double progress =
        static_cast<double>(from_zero + 1 - (warmup + stable_steps)) / static_cast<double>(decay_steps);
    double factor = 1 - progress;
    if (options.shape == DecayShape::Sqrt) factor = 1 - std::sqrt(progress);
    if (options.shape == DecayShape::Cosine) factor = 0.5 * (1 + std::cos(std::numbers::pi * progress));
    return options.min_factor + (1 - options.min_factor) * factor;
}

TEST(LrSchedule, IsTorchTitansAtEveryStep) {
    for (const DecayShape shape : {DecayShape::Linear, DecayShape::Cosine, DecayShape::Sqrt}) {
        for (const int64_t total : {1, 2, 5, 10, 37, 100}) {
            for (int64_t warmup = 0; warmup <= total; warmup += 1 + total / 7) {
                for (const double ratio : {-1.0, 0.0, 0.05, 0.25, 0.3, 0.5, 0.9, 1.0}) {
                    LrScheduleOptions drawn = options(shape, warmup, total);
                    if (ratio >= 0) drawn.decay_ratio = ratio;
                    drawn.min_factor = total % 2 == 0 ? 0.1 : 0;
                    const LrSchedule schedule(drawn);
                    for (int64_t step = 1; step <= total; ++step) {
                        EXPECT_NEAR(schedule.at_step(step), drawn.peak * published(drawn, step), 1e-12)
                            << "step " << step << " of " << total << ", warm-up " << warmup << ", ratio "
                            << ratio;
                    }
                }
            }
        }
    }
}

}  // namespace
}  // namespace argosy::train
