// What each precision promises: its loss follows fp32's, a rank alone computes as many do, and what would
// break it shows. The data are learnable (5.1 -> 1.3 in 200 steps) and AdamW's epsilon is of the gradients'
// own size, so that a gradient of the wrong scale moves the weights otherwise.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "support/faults.h"
#include "support/world.h"
#include "train/tiny_run.h"

namespace argosy::testing {
namespace {

using parallel::Precision;

constexpr Precision kFloat{at::kFloat, at::kFloat, at::kFloat};
constexpr Precision kMixed{at::kFloat, at::kBFloat16, at::kFloat};
constexpr Precision kHalf{at::kFloat, at::kHalf, at::kFloat};
constexpr Precision kPure{at::kBFloat16, at::kBFloat16, at::kFloat};

/// A few overflows at the start, and one each time that the scale has grown too large again.
constexpr optim::LossScaleOptions kScale{.init = 1 << 24, .growth_interval = 20};

struct Mode {
    const char* name;
    Precision precision;
    at::ScalarType moments = at::kFloat;
    std::optional<optim::LossScaleOptions> loss_scale = {};
};
void PrintTo(const Mode& mode, std::ostream* out) { *out << mode.name; }

const Mode kSingle{"fp32", kFloat};
const Mode kHalfMixed{"fp16_mixed", kHalf, at::kFloat, kScale};
const Mode kPureStates{"pure_bf16_and_states", kPure, at::kBFloat16};
const Mode kModes[] = {
    {"bf16_mixed", kMixed}, {"pure_bf16", kPure}, {"bf16_states", kFloat, at::kBFloat16}, kPureStates};

constexpr uint64_t kSeed = 11;
constexpr int kNumSteps = 200, kSmoothing = 10;

/// Largest distance between two smoothed losses. Of fp32 runs that start from other seeds (12 and 13, on the
/// same batches) it is 0.12 and 0.13: less than half of that is the precision's. Measured, on one rank and
/// two: fp16 mixed and bf16 states 0.0003, bf16 mixed 0.004, pure bf16 0.014; of the controls 0.46 (to
/// nearest), 0.83 (truncated), 1.6 (not unscaled), 4.1 (unscaled twice).
constexpr double kBand = 0.05;

TinyRun tiny_run(const Mode& mode, uint64_t seed, comm::Communicator& ranks) {
    return TinyRun({.layout = {"fsdp", {.shard = ranks.size()}},
                    .precision = mode.precision,
                    .microbatch_size = TinyRun::kGlobalBatch / ranks.size(),
                    .max_norm = 1,
                    .lr = 2e-3,
                    .adamw = {.eps = 1e-3, .moments = mode.moments},
                    .loss_scale = mode.loss_scale,
                    .data = TinyData::Pattern,
                    .seed = seed},
                   ranks);
}

/// The mean of the last losses, once there are enough.
class Smoothed {
  public:
    std::optional<double> add(double loss) {
        last_.push_back(loss);
        if (std::ssize(last_) < kSmoothing) return std::nullopt;
        if (std::ssize(last_) > kSmoothing) last_.pop_front();
        double sum = 0;
        for (const double each : last_) sum += each;
        return sum / kSmoothing;
    }

  private:
    std::deque<double> last_;
};

/// fp32 on one rank: what all are held against.
const std::vector<train::StepResult>& single_precision() {
    static const std::vector<train::StepResult> results = [] {
        TinyRun run = tiny_run(kSingle, kSeed, self());
        std::vector<train::StepResult> steps;
        for (int step = 0; step < kNumSteps; ++step) steps.push_back(run.train(step));
        return steps;
    }();
    return results;
}

/// Trains until the loss leaves the band, or to the end; `also(result)` sees each step. One that was skipped
/// in search of a loss scale is repeated, so that losses after as many updates are compared.
template <class Also>
::testing::AssertionResult follows_single_precision(const Mode& mode, uint64_t seed, Also also) {
    TinyRun run = tiny_run(mode, seed, world());
    Smoothed found, expected;
    double largest = 0;
    for (int step = 0; step < kNumSteps; ++step) {
        train::StepResult result = run.train(step);
        also(result);
        while (result.lowered_loss_scale) also(result = run.train(step));
        const auto loss = found.add(result.loss), reference = expected.add(single_precision()[step].loss);
        if (!loss) continue;
        largest = std::max(largest, std::abs(*loss - *reference));
        if (!(std::abs(*loss - *reference) <= kBand)) {
            return ::testing::AssertionFailure()
                   << "step " << step << ": " << *loss << " instead of " << *reference;
        }
    }
    return ::testing::AssertionSuccess() << "within " << largest;
}

::testing::AssertionResult follows_single_precision(const Mode& mode, uint64_t seed = kSeed) {
    return follows_single_precision(mode, seed, [](const train::StepResult&) {});
}

TEST(SinglePrecision, Learns) {
    EXPECT_GT(single_precision().front().loss, 4.8);
    EXPECT_LT(single_precision().back().loss, 1.6);
}

class Band : public ::testing::TestWithParam<Mode> {};

TEST_P(Band, TheLossFollowsSinglePrecision) { EXPECT_TRUE(follows_single_precision(GetParam())); }

INSTANTIATE_TEST_SUITE_P(Modes, Band, ::testing::ValuesIn(kModes),
                         [](const auto& mode) { return std::string(mode.param.name); });

TEST(HalfMixed, TheLossFollowsSinglePrecisionWhileTheScaleMoves) {
    std::vector<double> scales;
    int num_skipped = 0;
    EXPECT_TRUE(follows_single_precision(kHalfMixed, kSeed, [&](const train::StepResult& result) {
        EXPECT_EQ(result.skipped, result.lowered_loss_scale);
        scales.push_back(result.loss_scale.value());
        num_skipped += result.skipped;
    }));
    EXPECT_GE(num_skipped, 2);
    EXPECT_LE(num_skipped, 20);
    const auto grew = [&](size_t i) { return scales[i] == 2 * scales[i - 1]; };
    int num_grown = 0;
    for (size_t i = 1; i < scales.size(); ++i) num_grown += grew(i);
    EXPECT_GE(num_grown, 1);
}

struct Control {
    const char* name;
    Fault fault;
    Mode mode;
};
void PrintTo(const Control& control, std::ostream* out) { *out << control.name; }

class Controls : public ::testing::TestWithParam<Control> {};

TEST_P(Controls, LeaveTheBand) {
    const PlantedFault planted(GetParam().fault);
    const auto result = follows_single_precision(GetParam().mode);
    EXPECT_FALSE(result) << result.message();
}

INSTANTIATE_TEST_SUITE_P(
    Faults, Controls,
    ::testing::Values(Control{"gradients_not_unscaled", Fault::KeepLossScale, kHalfMixed},
                      Control{"gradients_unscaled_twice", Fault::UnscaleTwice, kHalfMixed},
                      Control{"rounded_to_nearest", Fault::RoundToNearest, kPureStates},
                      Control{"truncated", Fault::TruncateWeights, kPureStates}),
    [](const auto& control) { return std::string(control.param.name); });

// So the band is narrower than what a seed makes of the same run.
TEST(Controls, AnotherSeedLeavesTheBand) {
    const auto result = follows_single_precision(kSingle, 13);
    EXPECT_FALSE(result) << result.message();
}

struct Gradients {
    double loss, norm;
    NamedTensors gradients;
};

/// Of the first step, unscaled. Samples one by one, so that ranks multiply the same matrices.
Gradients gradients(const Mode& mode, comm::Communicator& ranks) {
    TinyRun run({.layout = {"fsdp", {.shard = ranks.size()}},
                 .precision = mode.precision,
                 .loss_scale = {{.init = 1024}}},
                ranks);
    const train::StepTotals totals = run.forward_backward(0);
    Gradients result{totals.loss, std::sqrt(totals.squared_norm), run.gradients()};
    for (auto& [name, gradient] : result.gradients) gradient /= 1024;
    return result;
}

struct Expected {
    const char* name;
    Precision precision;
    double least, most;  // difference of gradients from fp32's, by the type's last bit
};

// One rank computes in the type that was asked for, never in a wider one: it differs from fp32, and from two
// ranks by the order of fp32 sums alone.
TEST(OneRank, ComputesInTheTypeAskedForAsTwoDo) {
    const Gradients single = gradients(kSingle, self());
    for (const Expected& expected : {Expected{"bf16 mixed", kMixed, 2e-3, 0.1},
                                     {"fp16 mixed", kHalf, 2e-4, 0.02},
                                     {"pure bf16", kPure, 2e-3, 0.1}}) {
        SCOPED_TRACE(expected.name);
        const Mode mode{expected.name, expected.precision};
        const Gradients one = gradients(mode, self());
        const Difference narrow = largest_difference(one.gradients, single.gradients);
        EXPECT_GT(narrow.relative, expected.least) << narrow.name;
        EXPECT_LT(narrow.relative, expected.most) << narrow.name;
        EXPECT_NE(one.loss, single.loss);
        EXPECT_NEAR(one.loss / single.loss, 1, 1e-3);
        EXPECT_NEAR(one.norm / single.norm, 1, 0.01);

        const Gradients all = gradients(mode, world());
        const Difference ranks = largest_difference(all.gradients, one.gradients);
        EXPECT_LE(ranks.relative, 1e-6) << ranks.name;
        EXPECT_NEAR(all.loss / one.loss, 1, 1e-12);
        EXPECT_NEAR(all.norm / one.norm, 1, 1e-6);
    }
}

}  // namespace
}  // namespace argosy::testing
